"""The cases of `prediction`: their kinds and ranges, and how a seed draws them.

A case says what is run, on how many hosts, and on which devices. Drawing does not use the calibration, so the same seed
gives the same cases on every machine. `measuring` runs a case in a session.
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from seaway.wording import plural

Platform = Literal["timed", "cpu", "cuda"]
Kind = Literal["OpByOp", "Chained", "Fused", "pipeline", "clients", "mixed", "transfer"]
Dispatch = Literal["parallel", "sequential"]

PLATFORMS: tuple[Platform, ...] = ("timed", "cpu")  # which each machine has
ALL_PLATFORMS: tuple[Platform, ...] = get_args(Platform)
KINDS: tuple[Kind, ...] = get_args(Kind)
HOSTS: dict[Platform, tuple[int, ...]] = {"timed": (1, 2, 4, 8), "cpu": (1, 2, 3, 4), "cuda": (1,)}
STAGES: dict[Platform, int] = {"timed": 8, "cpu": 4, "cuda": 1}  # at most; each stage is on a host of its own
DURATIONS = (10_000, 10_000_000)  # nanoseconds of a timed computation
SIZES = (1_000, 64_000_000)  # bytes of a transfer
CLIENTS = 16
WEIGHTS = (1, 2, 4, 8)
AHEAD = 32  # calls under way of a client that does not wait for each
CHAINS = (2, 128)
# rows of a square matrix of float32; no size is in both, so times alone have different names
MATMULS: dict[Platform, tuple[int, ...]] = {"cpu": (64, 128, 256, 512), "cuda": (1024, 2048, 3072, 4096)}
LARGE = 8_000_000  # bytes from which a transfer has FEW_HOPS a call
HOPS, FEW_HOPS = 8, 2


class Work(msgspec.Struct, frozen=True):
    """One computation. `timed`: takes `size` nanoseconds. `matmul`: a product of square matrices of `size` rows, on
    each device alone. `reduce`: a scalar all-reduce over all devices, and an add."""

    op: Literal["timed", "matmul", "reduce"]
    size: int

    @property
    def name(self) -> str:
        return f"{self.size / 1000:g} us" if self.op == "timed" else f"{self.op}-{self.size}"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """works: two for `mixed`, one a client; none for `transfer`. chain: computations in a call, or in a `Fused` one."""

    number: int
    kind: Kind
    platform: Platform
    hosts: int
    works: tuple[Work, ...] = ()
    chain: int = 1
    dispatch: Dispatch = "parallel"
    weights: tuple[int, ...] = (1,)  # a client each
    ahead: int = 1  # calls that each client has under way
    nbytes: int = 0

    @property
    def title(self) -> str:
        what = " and ".join(work.name for work in self.works)
        of = f"({self.chain})" if self.chain > 1 else ""
        match self.kind:
            case "pipeline":
                how = f"{plural(self.hosts, 'stage')}, {self.dispatch}, {what}"
            case "transfer":
                how = f"{self.nbytes:,} bytes, {self.chain} hops"
            case "clients" | "mixed":
                differ = len(set(self.weights)) > 1
                weights = ":".join(map(str, self.weights)) if differ else "alike" if len(self.weights) > 1 else ""
                chains = f", chains of {self.chain}" if of else ""
                how = f"{len(self.weights)}{' ' * bool(weights)}{weights}{chains}, {what}, ahead {self.ahead}"
            case _:
                how = f"{of}{', ' if of else ''}{what}".strip()
        return f"{self.platform} {self.kind} {how}, {plural(self.hosts, 'host')}"


def drawn(seed: int, count: int, platforms: Sequence[Platform] = PLATFORMS) -> list[Case]:
    """Draw `count` cases, from shuffled decks that have each kind on each platform once."""
    chance = random.Random(f"prediction {seed}")
    cards = _cards(chance, platforms)
    return [_case(chance, number, *next(cards)) for number in range(1, count + 1)]


def _cards(chance: random.Random, platforms: Sequence[Platform]) -> Iterator[tuple[Platform, Kind]]:
    while True:
        deck = [
            (platform, kind)
            for platform in platforms
            for kind in KINDS
            if kind != "transfer" or max(HOSTS[platform]) > 1
        ]
        chance.shuffle(deck)
        yield from deck


def _case(chance: random.Random, number: int, platform: Platform, kind: Kind) -> Case:
    hosts = chance.choice(HOSTS[platform])
    case = Case(number=number, kind=kind, platform=platform, hosts=hosts)
    chain = _between(chance, CHAINS)
    match kind:
        case "OpByOp":
            return replace(case, works=(_work(chance, platform, hosts),), ahead=AHEAD)
        case "Chained" | "Fused":
            return replace(case, works=(_short(chance, platform, hosts),), chain=chain, ahead=2)
        case "pipeline":
            works, dispatch = (_work(chance, platform, 1),), chance.choice(get_args(Dispatch))
            stages = chance.randint(1, STAGES[platform])
            return replace(case, works=works, dispatch=dispatch, hosts=stages, ahead=8)
        case "clients":
            works, weights = (_work(chance, platform, hosts),), _weights(chance)
            chain, ahead = chance.choice((1, 1, 8)), chance.choice((1, 4))
            return replace(case, works=works, weights=weights, chain=chain, ahead=ahead)
        case "mixed":
            two = _two(chance, platform, hosts)
            return replace(case, works=two, weights=(1, 1), ahead=chance.choice((1, 4)))
        case "transfer":
            nbytes = _between(chance, SIZES)
            hops = FEW_HOPS if nbytes >= LARGE else HOPS
            return replace(case, hosts=2, nbytes=nbytes, chain=hops)


def _weights(chance: random.Random) -> tuple[int, ...]:
    """Weights of 1 to 16 clients (log-uniform); equal in half of the cases."""
    number = _between(chance, (1, CLIENTS))
    alike = chance.random() < 0.5
    return tuple(1 if alike else chance.choice(WEIGHTS) for _ in range(number))


def _work(chance: random.Random, platform: Platform, hosts: int) -> Work:
    if platform == "timed":
        return Work("timed", _between(chance, DURATIONS))
    if hosts > 1 and chance.random() < 0.5:
        return Work("reduce", 1)
    return Work("matmul", chance.choice(MATMULS[platform]))


def _short(chance: random.Random, platform: Platform, hosts: int) -> Work:
    """A short computation, for calls that do many."""
    if platform == "timed":
        return Work("timed", _between(chance, (DURATIONS[0], DURATIONS[1] // 10)))
    if hosts > 1 and chance.random() < 0.5:
        return Work("reduce", 1)
    return Work("matmul", chance.choice(MATMULS[platform][:2]))


def _two(chance: random.Random, platform: Platform, hosts: int) -> tuple[Work, Work]:
    """Two different computations."""
    first = _work(chance, platform, hosts)
    while (second := _work(chance, platform, hosts)) == first:
        pass
    return first, second


def _between(chance: random.Random, bounds: tuple[int, int]) -> int:
    """Log-uniform, both bounds included."""
    low, high = (math.log(bound) for bound in bounds)
    return min(bounds[1], max(bounds[0], round(math.exp(chance.uniform(low, high)))))

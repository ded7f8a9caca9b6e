"""Shows why gangs need one order: collectives of two programs without it in plain JAX, and of four clients in Seaway.

`python -m experiments.bench order`. Plain multi-controller JAX: two processes of one world enqueue collectives
A and B like two clients that do not know of each other. Each case has processes of its own, which are killed when they
make no progress. Seaway: four clients with slices that overlap on three hosts. Each call computes on the last one's
result in exact integers, so one wrong number anywhere shows at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from seaway.tools.calibrating import AXIS

from ..frame import options, processes
from ..frame.deployed import deployed
from ..frame.jax_world import JaxWorld

HOSTS = 3
GANGS = 10_000
CLIENTS = 4
CHECK = 50  # calls between two checks of the numbers
PAIRS = 200  # of collectives A and B
ROUND = 10  # pairs outstanding
BOUND = 60.0  # seconds for a case
SILENCE = 6.0  # seconds without progress after which a case counts as hung


class Case(NamedTuple):
    name: str
    orders: str  # "one": A, B everywhere; "opposite": B, A in one process; "threads": a thread for each
    other: str  # the kind of B; A is a sum of one number


CASES = (
    Case("one order, one thread", "one", "same"),
    Case("two threads, same collective", "threads", "same"),
    Case("two threads, sum and gather", "threads", "gather"),
    Case("opposite, same collective", "opposite", "same"),
    Case("opposite, sum and gather", "opposite", "gather"),
    Case("opposite, another size", "opposite", "size"),
)


# --- without one order ----------------------------------------------------------------------------------------------


def member(address: str, rank: int, count: int, orders: str, other: str, pairs: int) -> None:
    import jax

    world, lax = JaxWorld(address, rank, count), cast(Any, jax.lax)

    def array(value: int, size: int) -> Any:
        return world.array(np.full(size * count, value, np.int32))

    def summed(x: Any) -> Any:
        return lax.psum(x, AXIS)

    def gathered(x: Any) -> Any:
        return lax.all_gather(x, AXIS).sum(0)

    a, b = array(1, 1), array(100, 64 if other == "size" else 1)
    one = world.compiled(summed, a), a, count
    two = world.compiled(gathered if other == "gather" else summed, b), b, 100 * count
    for call, x, _ in (one, two):
        call(x).block_until_ready()
    tally = Tally()
    if orders == "threads":
        both = [threading.Thread(target=enqueue, args=([each], pairs, tally)) for each in (one, two)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    else:
        enqueue([two, one] if orders == "opposite" and rank else [one, two], pairs, tally)
    processes.say(over=True)
    processes.leave()


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.checked = self.wrong = 0
        processes.say(checked=0, wrong=0)

    def add(self, right: Sequence[bool]) -> None:
        with self._lock:
            self.checked += len(right)
            self.wrong += right.count(False)
            processes.say(checked=self.checked, wrong=self.wrong)


def enqueue(calls: Sequence[tuple[Callable[[Any], Any], Any, int]], times: int, tally: Tally) -> None:
    for _ in range(times // ROUND):
        made = [(call(x), expected) for _ in range(ROUND) for call, x, expected in calls]
        tally.add([bool((value.addressable_data(0) == expected).all()) for value, expected in made])


class Outcome(NamedTuple):
    """How a case ended. checked, wrong: results in both processes."""

    how: str
    checked: int
    wrong: int


def outcome_of(endings: Sequence[processes.Ending]) -> Outcome:
    """The outcome of a case. A process that failed because its peer did counts as the same failure."""
    last = [next((said for said in reversed(each.said) if "checked" in said), None) for each in endings]
    checked, wrong = (sum(each[key] for each in last if each) for key in ("checked", "wrong"))
    if all(each.code == 0 and each.said and "over" in each.said[-1] for each in endings):
        return Outcome("ended", checked, wrong)
    if not all(last):
        raise RuntimeError(f"a process of JAX's side did not start: {endings[last.index(None)].words}")
    return Outcome("aborted" if any(each.code for each in endings) else "hung", checked, wrong)


def without(case: Case, pairs: int = PAIRS) -> Outcome:
    words, env = (case.orders, case.other, pairs), processes.environment(1)
    return outcome_of(processes.played(member, 2, env, words, bound=BOUND, silence=SILENCE))


def shown(case: Case, found: Outcome) -> str:
    verdict = f"{found.wrong} of {found.checked} results wrong"
    if found.how != "ended":
        verdict += f", then it {found.how}" + (f" (nothing came for {SILENCE:g} s)" if found.how == "hung" else "")
    elif not found.wrong and case.orders != "one":
        verdict += " (by luck: nothing enforces it)"
    return f"  {case.name:30}{verdict}"


# --- with one order --------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A client's computation, which exists in JAX and in numpy, exact in integers of 32 bits."""

    devices: int
    gather: bool
    factor: int
    size: int  # on each device


KINDS = (Kind(3, False, 3, 1), Kind(2, False, 5, 1), Kind(2, True, 7, 1), Kind(2, False, 9, 64))


def step_of(kind: Kind) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        import jax

        lax: Any = jax.lax
        whole = lax.all_gather(x, AXIS).sum(0, dtype=x.dtype) if kind.gather else lax.psum(x, AXIS)
        return x * np.int32(kind.factor) + whole + np.int32(kind.size)

    return step


def expected(kind: Kind, x: np.ndarray[Any, Any], times: int) -> np.ndarray[Any, Any]:
    for _ in range(times):
        x = x * np.int32(kind.factor) + x.sum(0, dtype=np.int32) + np.int32(kind.size)
    return x


class Found(NamedTuple):
    gangs: int
    looks: int  # checks of numbers, which depend on all earlier gangs
    wrong: int  # failed checks
    switches: int  # gangs whose client is not that of the gang before
    seconds: float


def client(kind: Kind, number: int, calls: int) -> tuple[int, int]:
    """(checks of numbers, failed checks) of one client."""
    import seaway as sw

    work = sw.pmap(step_of(kind), AXIS, devices=sw.slice(devices=kind.devices, name=f"slice-{number}"))
    first = np.arange(1, 1 + kind.devices * kind.size, dtype=np.int32).reshape(kind.devices, kind.size)
    x: Any = first
    right, looks, wrong = first, 0, 0
    for done in range(1, calls + 1):
        x = work(x)
        if done % CHECK == 0 or done == calls:
            right = expected(kind, right, (done - 1) % CHECK + 1)
            looks, wrong = looks + 1, wrong + (not np.array_equal(np.asarray(x), right))
    return looks, wrong


def under_seaway(gangs: int) -> Found:
    import seaway as sw

    calls = -(-gangs // CLIENTS)
    with deployed(HOSTS) as cluster, sw.connect(cluster.address) as session:
        begun = time.perf_counter()
        tasks = [
            session.spawn(client, kind, number, calls, name=f"client-{number}") for number, kind in enumerate(KINDS)
        ]
        looked = [task.result() for task in tasks]
        seconds = time.perf_counter() - begun
        names = list(session.trace.gangs().sort_values("seq")["client"])
    switches = sum(one != other for one, other in pairwise(names))
    looks, wrong = (sum(each) for each in zip(*looked, strict=True))
    return Found(len(names), looks, wrong, switches, seconds)


# --- what is printed --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("order", __doc__)
    parser.number("--gangs", GANGS, "gangs of all clients together", at_least=CLIENTS)
    parser.number("--pairs", PAIRS, "pairs of collectives A and B", at_least=ROUND)
    chosen = parser.parse_args(arguments)
    print(f"plain JAX: 2 processes, {chosen.pairs} times a collective A and a collective B, {ROUND} of each at once")
    for case in CASES:
        print(shown(case, without(case, chosen.pairs)), flush=True)
    found = under_seaway(chosen.gangs)
    slices = ", ".join(str(kind.devices) for kind in KINDS)
    print(f"Seaway: {CLIENTS} clients, slices of {slices} of {HOSTS} hosts")
    print(f"  {found.gangs:,} gangs in {found.seconds:.1f} s, the next one another client's {found.switches:,} times: "
          f"{found.wrong} of {found.looks} looks at their numbers wrong")  # fmt: skip

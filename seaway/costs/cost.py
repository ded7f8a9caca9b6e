"""`Cost`: a computation's time, memory and collectives on each device, and the source of the figures."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Literal

import msgspec

from sim.hardware import Collective, Kernel

from ..errors import CostError
from ..file_reading import plain_bytes
from ..units import Time, nbytes, show_bytes, show_time
from ..units import duration as duration_of
from .hlo import HloCollective, Kind

Estimate = Literal["blend", "cycles", "optimal", "roofline", "stated", "recorded"]
MOST = 1 << 24  # bytes of a file
FORMAT = 1  # of the JSON; raise it when a field changes its meaning
APART = 2.0  # estimates that differ by a larger factor get a warning ...
SHORT = 1000  # ... unless they are shorter than this many nanoseconds
Groups = tuple[tuple[int, int], ...]
Amount = str | int | tuple[str | int, Groups]


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes on each device. `alias`: outputs that reuse memory of donated arguments. `peak`: the most at one time."""

    argument: int = 0
    output: int = 0
    alias: int = 0
    temp: int = 0
    code: int = 0
    peak: int = 0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """A computation's cost on each device.

    `duration` is one of `estimates` (all in nanoseconds), and `used` names it. Collectives are not included, since
    their time depends on the devices on which the computation is placed.
    """

    name: str
    duration: int
    used: str
    source: str  # as sim.hardware.Kernel has it
    estimates: dict[str, int] = {}
    collectives: tuple[HloCollective, ...] = ()
    overlap: str = ""  # how a roofline hides collectives: none, scheduled or full; "": as the compiler says
    steps: dict[str, int] = {}  # nanoseconds with collectives on the target, by overlap
    memory: MemoryUse = MemoryUse()
    flops: float = 0.0  # on each device
    hbm_bytes: float = 0.0
    devices: int = 0  # it was partitioned for; 0: any number
    target: str = ""  # the topology or chip that it was compiled for
    clock_hz: int = 0  # the clock that turned cycles into time
    notes: tuple[str, ...] = ()  # how to read the figures
    warnings: tuple[str, ...] = ()  # why the figures may be wrong
    versions: dict[str, str] = {}  # of the packages that made it
    digest: str = ""  # of the computation
    seconds: float = 0.0  # that the compiler took
    format: int = FORMAT

    @property
    def kernel(self) -> Kernel:
        """The cost as the simulator's `Kernel`."""
        return Kernel(
            name=self.name,
            duration=self.duration,
            collectives=tuple(map(collective_of, self.collectives)),
            temp=self.memory.temp,
            flops=self.flops,
            hbm_bytes=self.hbm_bytes,
            source=self.source,
        )

    def using(self, estimate: str) -> Cost:
        """The same cost with another of its estimates as the duration."""
        if estimate not in self.estimates:
            there = ", ".join(sorted(self.estimates)) or "none"
            raise CostError(f"{self.name!r} has no estimate {estimate!r}; there is: {there}")
        return msgspec.structs.replace(self, duration=self.estimates[estimate], used=estimate, steps={})

    def scaled(self, factor: float) -> Cost:
        """The same cost with its own time multiplied by `factor`, such as a measured efficiency.

        Collectives stay the same, but the work that hides them is scaled too.
        """
        if not factor > 0:
            raise CostError(f"a cost is scaled by a positive number, not {factor!r}")
        duration = max(1, round(self.duration * factor))
        exchanges = tuple(msgspec.structs.replace(one, hidden=round(one.hidden * factor)) for one in self.collectives)
        return msgspec.structs.replace(
            self, duration=duration, collectives=exchanges, steps={}, notes=(*self.notes, f"time scaled by {factor:g}")
        )

    @classmethod
    def from_recorded(cls, ns: int, name: str = "recorded", **fields: object) -> Cost:
        """A cost from a measured duration in nanoseconds. It includes collectives, as the measurement did."""
        return _measured(cls, ns, name, "recorded", fields)

    @classmethod
    def stated(cls, ns: int, name: str = "stated", **fields: object) -> Cost:
        return _measured(cls, ns, name, "stated", fields)

    # --- on disk ----------------------------------------------------------------------------------------

    def to_json(self, path: str | Path | None = None) -> str:
        """The cost as JSON, always the same text. It is also written to `path` if that is given."""
        text = msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=2).decode() + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, text_or_path: str | Path) -> Cost:
        """A cost from JSON text, or from a file."""
        what, text = "this", str(text_or_path).encode()
        if not text.lstrip().startswith(b"{"):
            what = str(text_or_path)
            try:
                text = plain_bytes(Path(text_or_path), MOST)
            except ValueError as error:
                raise CostError(f"no cost can be read from {what}: {error}") from None
        try:
            found = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CostError(f"{what} is not a saved cost: {error}") from None
        if found.format != FORMAT:
            raise CostError(
                f"{what}: the cost of {found.name!r} has format {found.format}, not {FORMAT}: compute it again"
            )
        return found

    def __str__(self) -> str:
        lines = [f"{self.name}: {show_time(self.duration)} a device ({self.used}, {self.source})"]
        if len(self.estimates) > 1:
            all_ = ", ".join(f"{key} {show_time(value)}" for key, value in sorted(self.estimates.items()))
            lines.append(f"  estimates: {all_}")
        if self.devices:
            where = f"{self.devices} device{'s' if self.devices > 1 else ''} of {self.target}"
            lines.append(f"  on {where}: {self.flops:.4g} flops and {show_bytes(self.hbm_bytes)} moved, each")
        if self.steps:
            ends = ", ".join(f"{kind} {show_time(time)}" for kind, time in self.steps.items() if kind != self.overlap)
            lines.append(f"  with collectives: {show_time(self.steps[self.overlap])} (overlap {self.overlap}; {ends})")
        sizes = {kind: getattr(self.memory, kind) for kind in ("argument", "output", "temp", "peak")}
        if any(sizes.values()):
            lines.append("  memory: " + ", ".join(f"{kind} {show_bytes(n)}" for kind, n in sizes.items() if n))
        lines += [f"  {describe(one)}" for one in self.collectives]
        lines += [f"  note: {text}" for text in self.notes] + [f"  warning: {text}" for text in self.warnings]
        return "\n".join(lines)


def collective_of(one: HloCollective) -> Collective:
    """A collective as the simulator's."""
    return Collective(one.kind, one.nbytes, one.groups, one.count, one.hidden)


def describe(one: HloCollective) -> str:
    """`4 x all-reduce of 2 MiB among 8 (stride 4), beside 12 us of work`."""
    strides = " by ".join(f"{size} with stride {stride}" for size, stride in one.groups)
    among = str(one.group_size or "all")
    if one.groups and one.groups != ((one.group_size, 1),):
        among += f" ({strides})"
    beside = f", beside {show_time(one.hidden)} of work" if one.hidden else ""
    return f"{one.count} x {one.kind} of {show_bytes(one.nbytes)} among {among}{beside}"


def _measured(cls: type[Cost], ns: object, name: str, source: str, fields: dict[str, object]) -> Cost:
    if isinstance(ns, bool) or not isinstance(ns, int) or ns < 0:
        raise CostError(f"a duration is a whole number of nanoseconds, not {ns!r}")
    return cls(name=name, duration=ns, used=source, source=source, estimates={source: ns}, **fields)  # type: ignore[arg-type]


def disagreement(estimates: dict[str, int]) -> str:
    """A warning if the estimates are far apart; else ""."""
    known = {key: value for key, value in estimates.items() if value >= SHORT}
    if len(known) < 2:
        return ""
    low, high = min(known, key=lambda key: known[key]), max(known, key=lambda key: known[key])
    if known[high] <= APART * known[low]:
        return ""
    ratio = known[high] / known[low]
    return f"estimates are {ratio:.1f}x apart: {low} {show_time(known[low])}, {high} {show_time(known[high])}"


# --- stated by the user ----------------------------------------------------------------------------------


def synthetic(
    duration: Time,
    *,
    name: str = "synthetic",
    allreduce: Amount | None = None,
    allgather: Amount | None = None,
    reducescatter: Amount | None = None,
    alltoall: Amount | None = None,
    permute: Amount | None = None,
    temp: str | int = 0,
    count: int = 1,
) -> Cost:
    """`synthetic("330us", allreduce="4B")`: a computation of 330 us with an all-reduce of 4 bytes on all its devices.

    A collective is given as the bytes of its operand on each device, or as (bytes, groups), with groups as in
    `sim.hardware.kernels`. `count`: how often it does all that, such as 128 for the paper's fusion of 128 computations.
    """
    if count < 1:
        raise CostError(f"count is how often it computes, at least 1, not {count!r}")
    asked: dict[Kind, Amount | None] = {
        "all-reduce": allreduce, "all-gather": allgather, "reduce-scatter": reducescatter,
        "all-to-all": alltoall, "permute": permute,
    }  # fmt: skip
    collectives = tuple(_exchange(kind, amount, count) for kind, amount in asked.items() if amount is not None)
    cost = Cost.stated(duration_of(duration) * count, name)
    return msgspec.structs.replace(cost, collectives=collectives, memory=MemoryUse(temp=nbytes(temp, "temp")))


def _exchange(kind: Kind, amount: Amount, count: int) -> HloCollective:
    groups: Groups = ()
    if isinstance(amount, tuple):
        amount, groups = amount
    size = prod(size for size, _ in groups) if groups else 0  # 0: all devices of the slice
    return HloCollective(kind, nbytes(amount, kind), groups, size, count)

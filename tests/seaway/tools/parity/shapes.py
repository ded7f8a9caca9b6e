"""Programs of all shapes. Programs on one place leave only the policy to decide, so the calls determine their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from core.model.program import Program
from tests.core import build

DEVICES = 4  # of an island


def chain() -> Sequence[Program]:
    return [build.chain(4, DEVICES, donate=True)] * 3


def irregular() -> Sequence[Program]:
    b = build.Build("irregular", s=DEVICES)
    x = b.call("made", "s", [b.arg("s", 8, split="0")], irregular=True)
    x = b.call("used", "s", [x])
    return [b.program(b.call("used", "s", [x], node="used again"))] * 3


def resharding() -> Sequence[Program]:
    """A chain on its own devices. Each step wants its input split the other way."""
    b = build.Build("resharding", s=DEVICES)
    x = b.arg("s", 8, 8, split="0.")
    for number in range(3):
        x = b.call("step", "s", [x], wants=[(".0", "0.")[number % 2]], node=f"step {number}")
    return [b.program(x)] * 3


def fan_out() -> Sequence[Program]:
    return [build.fan_out(2, 1)] * 2


def pipeline() -> Sequence[Program]:
    return [build.pipeline(2, 3, "1f1b", 2)] * 2


def crossing() -> Sequence[Program]:
    """Two programs, from island to island, in opposite directions."""
    hop = build.hop(4, 2, DEVICES)

    def over(name: str, *islands: str) -> Program:
        slices = tuple(
            msgspec.structs.replace(spec, name=f"{name} {island}", island=island)
            for spec, island in zip(hop.slices, islands, strict=True)
        )
        return msgspec.structs.replace(hop, slices=slices, name=name)

    return [over("there", "i0", "i1"), over("back", "i1", "i0")]


ONE_PLACE: dict[str, Callable[[], Sequence[Program]]] = {
    "chain": chain, "irregular": irregular, "resharding": resharding,
}  # fmt: skip
SEVERAL: dict[str, Callable[[], Sequence[Program]]] = {"fan-out": fan_out, "pipeline": pipeline, "crossing": crossing}
ALL = ONE_PLACE | SEVERAL

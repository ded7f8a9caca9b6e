"""Finds collectives in HLO text, in all forms in which compilers write them.

They may be plain (`all-reduce`), or split into a start and an end (`all-gather-start`, `all-gather-done`, or
`async-start` of a computation that contains one). The TPU compiler also puts them into fusions: a reduce-scatter is a
fusion of an all-reduce and a slice. An asynchronous collective is a chain of fusions with one channel, and the middle
ones do other work at the same time.
"""

import re
from typing import Literal

import msgspec

from .groups import ATTRIBUTE, PAIRS, BadGroups, Nested, members, nested, pairs_of, rings
from .shapes import HloShape, leaves
from .text import HloComputation, HloError, Module, Op

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"]
Part = Literal["whole", "start", "link", "done"]

KINDS: dict[str, Kind] = {
    "all-reduce": "all-reduce", "all-gather": "all-gather", "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all", "ragged-all-to-all": "all-to-all", "collective-permute": "permute",
    "collective-broadcast": "permute",
}  # fmt: skip
CHANNEL = re.compile(r"channel_id=(\d+)")
WRAPPERS = {"async", "call"}  # prefixes of operations that start a computation, here or on another kind of core
LAYOUT = {"convert", "copy", "bitcast", "reshape", "transpose"}
CHAINED = '"async_collective_fusion_config"'


class HloCollective(msgspec.Struct, frozen=True):
    """One collective: `count` times in the computation."""

    kind: Kind
    nbytes: int  # of the operand on each device
    groups: Nested
    group_size: int
    count: int = 1
    hidden: int = 0  # nanoseconds of other work between its start and end, counted for it alone, each time
    regular: bool = True  # whether `groups` describes all its groups exactly


class CollectivePart(msgspec.Struct, frozen=True):
    """The part that an operation plays in a collective. Parts of one collective have the same `key`."""

    part: Part
    key: str
    exchange: HloCollective | None


class Finder:
    """`scattering`: count an all-reduce of which each device keeps only a slice as a reduce-scatter, since a compiler
    for accelerators makes it one."""

    def __init__(self, module: Module, scattering: bool = False) -> None:
        self.module = module
        self.scattering = scattering
        self._inside: dict[str, tuple[tuple[HloComputation, Op], ...]] = {}

    def find(self, computation: HloComputation, op: Op) -> CollectivePart | None:
        base, dash, end = op.opcode.rpartition("-")
        if op.opcode in KINDS:
            exchange = self._exchange(computation, op, KINDS[op.opcode])
            reduces = self.scattering and op.opcode == "all-reduce"
            if reduces and _sliced(computation, op, exchange.group_size):
                exchange = msgspec.structs.replace(exchange, kind="reduce-scatter")
            return CollectivePart("whole", op.name, exchange)
        if dash and base in KINDS and end == "start":
            return CollectivePart("start", op.name, self._exchange(computation, op, KINDS[base]))
        if dash and end in ("done", "update") and op.operands and (base in KINDS or base in WRAPPERS):
            return CollectivePart("done" if end == "done" else "link", op.operands[0], None)
        if op.opcode == "fusion" or (dash and base in WRAPPERS and end == "start"):
            return self._called(computation, op)
        return None

    def _called(self, computation: HloComputation, op: Op) -> CollectivePart | None:
        called = op.called("calls") or op.called("to_apply")
        held = self._collectives(called[0]) if called else ()
        if not held:
            return None
        inner, collective = held[0]
        exchange = self._exchange(inner, collective, KINDS[collective.opcode])
        if op.opcode != "fusion":
            return CollectivePart("start", op.name, exchange)
        if CHAINED in collective.attributes:
            return CollectivePart("link", f"channel {collective.attribute(CHANNEL)}", exchange)
        if exchange.kind == "all-reduce" and any(one.opcode == "dynamic-slice" for one in inner.ops.values()):
            exchange = msgspec.structs.replace(exchange, kind="reduce-scatter")
        return CollectivePart("whole", op.name, exchange)

    def _collectives(self, name: str) -> tuple[tuple[HloComputation, Op], ...]:
        """The collectives in that computation and in its fusions."""
        if name not in self._inside:
            found: list[tuple[HloComputation, Op]] = []
            inner = self.module[name]
            for op in inner.ops.values():
                if op.opcode in KINDS:
                    found.append((inner, op))
                elif op.opcode in ("fusion", "call"):
                    found += self._collectives((op.called("calls") or op.called("to_apply"))[0])
            self._inside[name] = tuple(found)
        return self._inside[name]

    def _exchange(self, computation: HloComputation, op: Op, kind: Kind) -> HloCollective:
        kinds = [computation.ops[name].kind for name in op.operands if name in computation.ops]
        nbytes = sum(shape.nbytes for kind in kinds for shape in leaves(kind))
        devices = self.module.devices
        try:
            if kind == "permute" and (pairs := PAIRS.search(op.attributes)):
                groups = rings(pairs_of(pairs[1]))
            else:
                groups = members(op.attribute(ATTRIBUTE), devices)
        except BadGroups as error:
            raise HloError(f"{op.opcode} {op.name!r}: {error}") from None
        shape, regular = nested(groups or [[0]], devices)
        if kind == "permute" and not regular:
            shape = ()  # any two devices may exchange
        size = max(map(len, groups), default=1)
        return HloCollective(kind, nbytes, shape, size, regular=regular)


def _sliced(computation: HloComputation, op: Op, size: int) -> bool:
    """Whether each device keeps only its own slice of the result of `op`."""
    users = computation.users[op.name]
    while len(users) == 1 and users[0].opcode in LAYOUT:
        users = computation.users[users[0].name]
    if len(users) != 1 or users[0].opcode != "dynamic-slice" or not isinstance(op.kind, HloShape):
        return False
    kept = users[0].kind
    return isinstance(kept, HloShape) and kept.elements * size == op.kind.elements

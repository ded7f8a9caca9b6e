"""Adds up a computation: the compiler's cycles, work, collectives, and how its parts overlap.

A parsed module and a device's rates go in. Three times come out, for the same operations:

- `cycles`: the sum of the compiler's estimated cycles;
- `roofline`: for each operation the longest of three: its matrix flops at the peak rate, its elementwise operations at
  the vector unit's rate, its bytes at the full bandwidth;
- `blend`: the compiler's cycles for matrix operations that are bound by arithmetic, since they include how well a shape
  fills the matrix unit; the roofline for all others. There the compiler's figure only serves it to choose a tiling, and
  is up to ten times too high if memory is the bound. Copies that start early run beside other work, and only the rest
  of them counts when they are waited for.

Loops count as often as they run. `once_roofline` counts each body once, as a compiler's own totals do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from . import loops, overlap
from .collectives import CollectivePart, Finder, HloCollective
from .ends import unmoved
from .text import HloComputation, Module, Op
from .work import FREE, ModuleWork

CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
TARGET = re.compile(r'custom_call_target="([^"]*)"')
NO_WORK = {
    "AllocateBuffer", "ConcatBitcast", "PrepareAsyncCallStart", "PrepareAsyncCallDone",
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AssumeGatherIndicesInBound",
}  # fmt: skip


CALLING = {"while", "call", "conditional"}
MOSTLY = 0.5  # an operation is bound by arithmetic if that takes more than this part of the time for its bytes


class Rates(NamedTuple):
    flops: float  # a second
    bandwidth: float  # bytes a second
    clock: float  # hertz
    vector: float = 0.0  # elementwise operations a second; 0: no bound


Links = Callable[[HloCollective], float]


class Tally(msgspec.Struct):
    """Times in nanoseconds, on each device."""

    cycles: float = 0.0
    roofline: float = 0.0
    blend: float = 0.0
    flops: float = 0.0
    moved: float = 0.0
    once_roofline: float = 0.0  # with each loop's body counted once
    exchanges: dict[HloCollective, int] = {}
    unknown_loops: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()  # custom calls whose time is unknown

    def add(self, other: Tally, times: int = 1) -> None:
        for field in ("cycles", "roofline", "blend", "flops", "moved"):
            setattr(self, field, getattr(self, field) + times * getattr(other, field))
        self.once_roofline += other.once_roofline
        for exchange, count in other.exchanges.items():
            self.exchanges[exchange] = self.exchanges.get(exchange, 0) + times * count
        self.unknown_loops += other.unknown_loops
        self.silent += other.silent

    def collectives(self) -> tuple[HloCollective, ...]:
        """Collectives in the order in which they first occur; equal ones are one, with their count."""
        return tuple(msgspec.structs.replace(one, count=count) for one, count in self.exchanges.items())


def tally(module: Module, rates: Rates, *, fused: bool = True, links: Links | None = None) -> Tally:
    """Add up the module's entry computation.

    `fused`: the text is the compiler's final one. If False, it is the text before fusion, and arguments and results of
    the whole computation that no operation moves by itself are counted as moved once. `links`: how long a collective
    takes, to find what `overlap` hides of it; otherwise only text with asynchronous collectives hides any.
    """
    return _TallyWalk(module, rates, fused, links).computation(module[module.entry], {})


class _TallyWalk:
    def __init__(self, module: Module, rates: Rates, fused: bool, links: Links | None) -> None:
        self.module = module
        self.rates = rates
        self.links = links
        self.fused = fused
        self.work = ModuleWork(module, fused)
        self.finder = Finder(module, scattering=not fused)
        self.done: dict[tuple[str, tuple[tuple[tuple[int, ...], int], ...], int], Tally] = {}

    def computation(self, computation: HloComputation, known: loops.Known, rounds: int = 1) -> Tally:
        key = (computation.name, tuple(sorted(known.items())), rounds)
        if key not in self.done:
            self.done[key] = self._walk(computation, known, rounds)
        return self.done[key]

    def _walk(self, computation: HloComputation, known: loops.Known, rounds: int) -> Tally:
        total = Tally()
        lane = _Lanes(self.rates)
        parts = ((op.name, self.finder.find(computation, op)) for op in computation.ops.values())
        chains = _Chains({name: part for name, part in parts if part is not None})
        exchanges: dict[str, HloCollective] = {}
        works: dict[str, overlap.Work] = {}
        for op in computation.ops.values():
            before = total.blend
            found = chains.found.get(op.name)
            if self.links and found and found.exchange and found.part == "whole" and found.exchange.group_size > 1:
                exchanges[op.name] = found.exchange
                works[op.name] = overlap.Work(links=self.links(found.exchange))
                continue
            if found is not None:
                chains.meet(op, found, total)
            if found is None or found.part == "link":
                self._op(computation, op, known, total, lane)
            chains.worked(total.blend - before)
            works[op.name] = overlap.Work(total.blend - before, alone=op.opcode in CALLING)
        chains.finish(total)
        if exchanges:
            hidden = overlap.hidden(computation, works, rounds)
            for name, exchange in exchanges.items():
                _count(exchange, hidden.get(name, 0.0), total)
        if computation.entry and not self.fused:
            total.add(self._ends(computation))
        return total

    def _ends(self, computation: HloComputation) -> Tally:
        """The time and bytes of reading arguments and writing results, where no operation does that by itself."""
        moved = unmoved(self.module, computation)
        time = moved / self.rates.bandwidth * 1e9
        return Tally(roofline=time, blend=time, moved=moved, once_roofline=time)

    def _op(self, computation: HloComputation, op: Op, known: loops.Known, total: Tally, lane: _Lanes) -> None:
        match op.opcode:
            case "while":
                self._loop(computation, op, known, total)
            case "call" | "call-start" | "async-start":
                for name in op.called("to_apply") or op.called("calls"):
                    total.add(self.computation(self.module[name], {}))
            case "conditional":
                self._branches(op, total)
            case _:
                self._plain(computation, op, total, lane)

    def _loop(self, computation: HloComputation, op: Op, known: loops.Known, total: Tally) -> None:
        count = loops.trips(self.module, computation, op, known)
        inside = loops.inside(self.module, computation, op, known)
        rounds = min(count or 1, overlap.ROUNDS)
        body = self.computation(self.module[op.called("body")[0]], inside, rounds)
        if count is None:
            total.unknown_loops += (op.name,)
        total.add(body, 1 if count is None else count)

    def _branches(self, op: Op, total: Tally) -> None:
        """Add the most expensive branch: an upper bound, since the data choose."""
        either = (*op.called("true_computation"), *op.called("false_computation"))
        names = op.called("branch_computations") or either
        branches = [self.computation(self.module[name], {}) for name in names]
        total.add(max(branches, key=lambda one: one.blend, default=Tally()))

    def _plain(self, computation: HloComputation, op: Op, total: Tally, lane: _Lanes) -> None:
        if op.opcode == "custom-call" and not op.attribute(CYCLES) and op.attribute(TARGET) not in NO_WORK:
            total.silent += (op.attribute(TARGET),)
        if op.opcode in FREE:
            return
        if op.opcode in ("copy-done", "slice-done"):
            total.blend += lane.wait(op.operands[0], total.blend)
            return
        flops, moved = self.work.flops(computation, op), self.work.moved(computation, op)
        cycles = int(op.attribute(CYCLES) or 0) / self.rates.clock * 1e9
        memory = moved / self.rates.bandwidth * 1e9
        matrix = flops / self.rates.flops * 1e9
        slow = self.work.elementwise(computation, op) / self.rates.vector * 1e9 if self.rates.vector else 0.0
        bound = max(matrix, slow, memory)
        total.add(Tally(cycles, bound, 0.0, flops, moved, bound))
        if op.opcode in ("copy-start", "slice-start"):
            lane.start(op.name, moved, total.blend)
        else:
            total.blend += cycles if cycles and matrix > MOSTLY * memory else bound


class _Lanes:
    """Copies that run beside the computation, one after the other."""

    def __init__(self, rates: Rates) -> None:
        self.bandwidth = rates.bandwidth
        self.free = 0.0
        self.ends: dict[str, float] = {}

    def start(self, name: str, moved: float, now: float) -> None:
        self.free = max(self.free, now) + moved / self.bandwidth * 1e9
        self.ends[name] = self.free

    def wait(self, name: str, now: float) -> float:
        return max(0.0, self.ends.get(name, now) - now)


class _Chains:
    """The collectives of one computation, each with the work between its start and its end.

    Collectives share the links, so a nanosecond of work can hide only one nanosecond of them. It is divided equally
    among the collectives that are under way.
    """

    def __init__(self, found: dict[str, CollectivePart]) -> None:
        self.found = found
        self.first: dict[str, str] = {}
        self.last: dict[str, str] = {}
        self.under_way: dict[str, HloCollective] = {}
        self.hidden: dict[str, float] = {}
        for name, one in self.found.items():
            if one.part == "link":
                self.first.setdefault(one.key, name)
                self.last[one.key] = name

    def worked(self, time: float) -> None:
        for key in self.under_way:
            self.hidden[key] += time / len(self.under_way)

    def meet(self, op: Op, found: CollectivePart, total: Tally) -> None:
        exchange = found.exchange
        if found.part == "whole" and exchange is not None:
            _count(exchange, 0.0, total)
        elif found.part == "start" or self.first.get(found.key) == op.name:
            if exchange is not None:
                self.under_way[found.key], self.hidden[found.key] = exchange, 0.0
        if found.part == "done" or (self.last.get(found.key) == op.name):
            self._end(found.key, total)

    def finish(self, total: Tally) -> None:
        """End the collectives that end elsewhere, for example in the next round of a loop."""
        for key in list(self.under_way):
            self._end(key, total)

    def _end(self, key: str, total: Tally) -> None:
        if key in self.under_way:
            _count(self.under_way.pop(key), self.hidden.pop(key), total)


def _count(exchange: HloCollective, hidden: float, total: Tally) -> None:
    if exchange.group_size < 2:
        return
    one = msgspec.structs.replace(exchange, hidden=round(hidden))
    total.exchanges[one] = total.exchanges.get(one, 0) + 1

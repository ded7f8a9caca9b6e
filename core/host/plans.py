"""What a plan means to one host, worked out once a plan, so that no gang pays for it again.

A plan is the same for all hosts of an island; a `HostPlan` says what it asks of one of them, and of all hosts that
have the same part in its places: executors that stand for such hosts share it. For each gang it
has a `PlannedGang`: which slots the gang reads and makes, and which die with it. Slots are the same in every run of
the plan; a `host_state.HostRun` turns them into buffers.

Neighbours: `executor` makes a `HostPlan` of every plan in the stream; `launches` reads its gangs, `host_moves` its
moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..model import FEW, Gang, Layout, Move, Place, Plan, Slot, Spans, device_spans, spans
from ..transfer import Piece

CALLS = 16  # of a plan that are remembered
ONE_LANE = (0,)


class PlannedGang(msgspec.Struct, frozen=True, eq=False):
    """What this host does for one gang of a plan. It is the same on all hosts that behave alike."""

    program: str
    name: str
    inputs: tuple[tuple[int, int], ...]  # (slot, how many from there on)
    outputs: tuple[tuple[int, tuple[Layout, ...]], ...]  # (slot, layouts from there on)
    makes: frozenset[int]  # slots of outputs
    donated: tuple[tuple[int, int], ...]  # (slot, how many)
    # (slot, its argument or -1, how many): free when the gang has finished
    dying: tuple[tuple[int, int, int], ...]
    counted: tuple[int, ...]  # slots that moves read too: free when the last read has ended
    lanes: tuple[int, ...]  # launch queues
    lets_go: bool  # any of donated, dying and counted


class HostCall:
    """What a plan asks for if some arguments come as one: `widths` says which. Slots whose buffers have consecutive
    ids then, and that a gang uses one after the other, it uses as one."""

    __slots__ = ("_next", "arguments", "gangs")

    def __init__(self, plan: HostPlan, widths: tuple[int, ...]) -> None:
        self.gangs: dict[int, PlannedGang] = {}  # by step; filled when first needed
        slots = {arg: (slot, layout) for slot, arg, layout in plan.arguments}
        # For each argument: slot, number of what names it in the call, which one of that, argument, how many, layout.
        self.arguments: list[tuple[int, int, int, int, int, Layout | None]] = []
        self._next: dict[int, int] = {}  # slot of an argument -> the one whose buffer has the next id
        first = 0
        for number, width in enumerate(widths):
            for at in range(width):
                slot, layout = slots.get(first + at, (-1, None))
                before = slots.get(first + at - 1, (-1, None))[0] if at else -1
                if slot < 0:
                    continue
                if before >= 0 and before + 1 == slot:
                    self._next[before] = slot
                    *row, count, _ = self.arguments[-1]
                    self.arguments[-1] = (*row, count + 1, None)  # type: ignore[assignment]
                else:
                    self.arguments.append((slot, number, at, first + at, 1, layout if width == 1 else None))
            first += width

    def runs(self, slots: Sequence[int], args: Callable[[int], int]) -> list[tuple[int, int]]:
        """These slots, those as one that may be: (first, how many)."""
        found: list[tuple[int, int]] = []
        start = 0
        for end in range(1, len(slots) + 1):
            if end < len(slots) and slots[end] == slots[end - 1] + 1:
                one, other = args(slots[end - 1]), args(slots[end])
                if (one < 0 and other < 0) or self._next.get(slots[end - 1]) == slots[end]:
                    continue
            few = end - start < FEW and args(slots[start]) < 0
            found += [(slot, 1) for slot in slots[start:end]] if few else [(slots[start], end - start)]
            start = end
        return found


class HostPlan:
    """`devices`: this host's. `by_device`: one launch queue for each device, instead of one for the host."""

    __slots__ = (
        "_by_device", "_calls", "_devices", "_dying", "_pattern", "arguments", "arity", "moves", "named", "parts",
        "plan", "reads", "receives", "sends", "slots",
    )  # fmt: skip

    def __init__(self, plan: Plan, devices: Spans, by_device: bool) -> None:
        self.plan = plan
        self._devices = devices
        self._pattern: tuple[Spans, ...] | None = None  # filled when first needed
        self.slots = len(plan.slots)
        self.named: Any = None  # what the last header of a run said (`run_names`)
        self._by_device = by_device
        self._calls: dict[tuple[int, ...], HostCall] = {}  # by how many arguments each entry of a call names
        # by step and host; filled when first needed
        self.sends: dict[tuple[int, int], tuple[Piece, ...]] = {}
        self.receives: dict[tuple[int, int], tuple[Piece, ...]] = {}
        # Each argument: its slot, its index, and its layout if a literal for it must be made on this host.
        self.arguments = tuple(
            (number, slot.arg, slot.layout if self._used_here(slot) else None)
            for number, slot in enumerate(plan.slots)
            if slot.arg >= 0
        )
        self.arity = max((arg + 1 for _, arg, _ in self.arguments), default=0)
        self._dying: dict[int, list[tuple[int, int]]] = {}  # by step
        for number, slot in enumerate(plan.slots):
            self._dying.setdefault(slot.last, []).append((number, slot.arg))
        self.moves = {index: step for index, step in enumerate(plan.steps) if isinstance(step, Move)}
        gangs = [step for step in plan.steps if isinstance(step, Gang)]
        # How many reads there are of each slot that moves read.
        self.reads = {number: len(slot.senders) for number, slot in enumerate(plan.slots) if slot.senders}
        for gang in gangs if self.reads else ():
            for number in dict.fromkeys(gang.inputs):
                if number in self.reads:
                    self.reads[number] += 1
        # How many steps a run of the plan brings this host: gangs, and halves of moves.
        ends = [self.layout(end[0]).place for move in self.moves.values() for end in (move.sources, move.targets)]
        self.parts = sum(map(self.has_part_in, [*(gang.place for gang in gangs), *ends]))

    def _used_here(self, slot: Slot) -> bool:
        used = slot.keep or slot.last >= 0 or slot.senders
        return bool(used) and self.has_part_in(slot.layout.place)

    def call(self, widths: tuple[int, ...]) -> HostCall:
        found = self._calls.get(widths)
        if found is None:
            if len(self._calls) >= CALLS:
                self._calls.clear()
            found = self._calls[widths] = HostCall(self, widths)
        return found

    def gang(self, index: int, call: HostCall) -> PlannedGang | None:
        """None where there is no such gang, and where it is another island's: such a gang has no devices."""
        plan = self.plan
        gang = plan.steps[index] if 0 <= index < len(plan.steps) else None
        if not isinstance(gang, Gang) or not gang.place.grids:
            return None
        outputs = tuple(
            (slot, tuple([plan.slots[each].layout for each in range(slot, slot + count)]))
            for slot, count in self._as_one(call, gang.outputs)
        )
        dying = tuple(
            (slot, plan.slots[slot].arg, count)
            for slot, count in self._as_one(call, [slot for slot, _ in self._dying.get(index, ())])
        )
        counted = tuple(slot for slot in dict.fromkeys(gang.inputs) if plan.slots[slot].senders)
        lanes = tuple(spans.items(local(gang.place, self._devices))) if self._by_device else ONE_LANE
        inputs, donated = self._as_one(call, gang.inputs), self._as_one(call, gang.donated)
        planned = call.gangs[index] = PlannedGang(
            plan.program, gang.name, tuple(inputs), outputs, frozenset(gang.outputs), tuple(donated), dying,
            counted, lanes, bool(gang.donated or dying or counted),
        )  # fmt: skip
        return planned

    def _as_one(self, call: HostCall, slots: Sequence[int]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        together: list[int] = []
        for slot in slots:  # what moves read is counted by itself
            if self.plan.slots[slot].senders:
                found += [*call.runs(together, self._arg), (slot, 1)]
                together = []
            else:
                together.append(slot)
        return found + call.runs(together, self._arg)

    def _arg(self, slot: int) -> int:
        return self.plan.slots[slot].arg

    def pattern(self) -> tuple[Spans, ...]:
        """Which devices of a host are in each place of the plan: the same for all hosts that share this."""
        if self._pattern is None:
            self._pattern = tuple([local(place, self._devices) for place in places_of(self.plan)])
        return self._pattern

    def has_part_in(self, place: Place) -> bool:
        return spans.overlap(device_spans(place), self._devices)

    def compiles(self, number: int) -> bool:
        """Whether some gang that uses this code runs here. All gangs that do have one place."""
        codes, steps = self.plan.codes, self.plan.steps
        if not 0 <= number < len(codes) or not 0 <= codes[number].step < len(steps):
            return False
        step = steps[codes[number].step]
        return isinstance(step, Gang) and self.has_part_in(step.place)

    def first_device(self, number: int) -> int:
        """The first device of node 0, if this is the code of that node; else -1."""
        step = self.plan.steps[self.plan.codes[number].step]
        return step.place.device(0) if isinstance(step, Gang) and step.node == 0 else -1

    def layout(self, slot: int) -> Layout:
        return self.plan.slots[slot].layout

    def layouts(self, slots: Sequence[int]) -> tuple[Layout, ...]:
        return tuple([self.plan.slots[slot].layout for slot in slots])


def concerns(plan: Plan, devices: Spans) -> bool:
    """Messages are for many hosts. A plan in which none of these devices has a part is for other hosts."""
    return any(spans.overlap(device_spans(place), devices) for place in places_of(plan))


def places_of(plan: Plan) -> tuple[Place, ...]:
    run_at = [step.place for step in plan.steps if isinstance(step, Gang)]
    return tuple(dict.fromkeys([*run_at, *(slot.layout.place for slot in plan.slots)]))


def local(place: Place, devices: Spans) -> Spans:
    """Which of a host's devices are in the place, counted from the host's first: alike hosts have the same."""
    return spans.shift(spans.meet(device_spans(place), devices), -devices[0][0])

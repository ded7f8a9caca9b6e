"""What a plan means to one host, worked out once when the plan comes, so that no gang pays for it again.

A plan is the same for all hosts of an island; a `HostPlan` says what it asks of one of them. For each gang it
has a `GangRow`: which slots the gang reads and makes, and which die with it. Slots are the same in every run of
the plan; `state.HostRun` turns them into buffers.

Neighbours: `executor` makes a `HostPlan` of every plan in the stream and hands its rows to `launches`.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import msgspec

from ..model import Gang, Layout, Move, Place, Plan, Slot, Spans, device_spans, spans
from ..transfer import Piece

ONE_LANE = (0,)


class GangRow(msgspec.Struct, frozen=True, eq=False):
    """What this host does for one gang of a plan. It is the same on all hosts that behave alike."""

    program: str
    name: str
    inputs: tuple[int, ...]  # slots
    outputs: tuple[tuple[int, Layout], ...]  # slots
    donated: tuple[int, ...]  # slots
    dying: tuple[tuple[int, int], ...]  # (slot, its argument or -1): free when the gang has finished
    counted: tuple[int, ...]  # slots that moves read too: free when the last read has ended
    lanes: tuple[int, ...]  # launch queues
    lets_go: bool  # any of donated, dying and counted

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nobody can change it


class HostPlan:
    """`devices`: this host's. `by_device`: one launch queue for each device, instead of one for the host."""

    __slots__ = (
        "_devices", "arguments", "arity", "gangs", "moves", "parts", "places", "plan", "reads", "receives",
        "sends", "slots",
    )  # fmt: skip

    def __init__(self, plan: Plan, devices: Spans, by_device: bool) -> None:
        self.plan = plan
        self.slots = len(plan.slots)
        gangs = [step.place for step in plan.steps if isinstance(step, Gang)]
        self.places: tuple[Place, ...] = tuple(
            dict.fromkeys([*gangs, *(slot.layout.place for slot in plan.slots)])
        )
        self.sends: dict[int, tuple[Piece, ...]] = {}  # by move; filled when first needed
        self.receives: dict[int, tuple[Piece, ...]] = {}
        self.stand_for(devices)
        # Each argument: its slot, its index, and its layout if a literal for it must be made on this host.
        self.arguments = tuple(
            (number, slot.arg, slot.layout if self._used_here(slot) else None)
            for number, slot in enumerate(plan.slots)
            if slot.arg >= 0
        )
        self.arity = max((arg + 1 for _, arg, _ in self.arguments), default=0)
        self.moves = {index: step for index, step in enumerate(plan.steps) if isinstance(step, Move)}
        self.gangs = self._gangs(by_device)
        # How many reads there are of each slot that moves read.
        self.reads = {number: len(slot.senders) for number, slot in enumerate(plan.slots) if slot.senders}
        for row in self.gangs.values():
            for number in row.counted:
                self.reads[number] += 1
        # How many steps a run of the plan brings this host: gangs, and halves of moves.
        ends = [self.layout(end).place for move in self.moves.values() for end in (move.source, move.target)]
        self.parts = sum(map(self.has_part_in, [*gangs, *ends]))

    def _used_here(self, slot: Slot) -> bool:
        used = slot.keep or slot.last >= 0 or slot.senders
        return bool(used) and self.has_part_in(slot.layout.place)

    def _gangs(self, by_device: bool) -> dict[int, GangRow]:
        """By step. A gang without devices is a blank: it is another island's."""
        plan = self.plan
        dying: dict[int, list[tuple[int, int]]] = {}
        for number, slot in enumerate(plan.slots):
            dying.setdefault(slot.last, []).append((number, slot.arg))
        rows: dict[int, GangRow] = {}
        for index, gang in enumerate(plan.steps):
            if isinstance(gang, Gang) and gang.place.grids:
                outputs = tuple((slot, plan.slots[slot].layout) for slot in gang.outputs)
                dies = tuple(dying.get(index, ()))
                counted = tuple(slot for slot in dict.fromkeys(gang.inputs) if plan.slots[slot].senders)
                lanes = tuple(spans.items(local(gang.place, self._devices))) if by_device else ONE_LANE
                rows[index] = GangRow(
                    plan.program, gang.name, gang.inputs, outputs, gang.donated, dies, counted, lanes,
                    bool(gang.donated or dies or counted),
                )  # fmt: skip
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> HostPlan:
        """For a twin of the executor. What follows from the plan is shared, what follows from the host is not."""
        twin = copy(self)
        twin.stand_for(self._devices)
        return twin

    def stand_for(self, devices: Spans) -> None:
        """From now on for another host, whose devices have the same part in all places of the plan."""
        self._devices = devices
        self.sends, self.receives = {}, {}

    def same_for(self, devices: Spans) -> bool:
        """Whether a host with these devices has the same part in all places of the plan."""
        return all(local(place, self._devices) == local(place, devices) for place in self.places)

    def has_part_in(self, place: Place) -> bool:
        return spans.overlap(device_spans(place), self._devices)

    def concerns_host(self) -> bool:
        """Messages are for many hosts. A plan in which no device of this host has a part is for others."""
        return any(map(self.has_part_in, self.places))

    def compiles(self, number: int) -> bool:
        """Whether some gang that uses this code runs here. All gangs that do have one place."""
        codes, steps = self.plan.codes, self.plan.steps
        if not 0 <= number < len(codes) or not 0 <= codes[number].step < len(steps):
            return False
        step = steps[codes[number].step]
        return isinstance(step, Gang) and self.has_part_in(step.place)

    def layout(self, slot: int) -> Layout:
        return self.plan.slots[slot].layout


def local(place: Place, devices: Spans) -> Spans:
    """Which of a host's devices are in the place, counted from the host's first: alike hosts have the same."""
    return spans.shift(spans.meet(device_spans(place), devices), -devices[0][0])

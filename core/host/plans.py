"""What a plan means to one host, worked out once a plan, so that no gang pays for it again.

A plan is the same for all hosts of an island; a `HostPlan` says what it asks of one of them, and of all hosts that
have the same part in its places: executors that stand for such hosts share it. For each gang it
has a `PlannedGang`: which slots the gang reads and makes, and which die with it. Slots are the same in every run of
the plan; a `host_state.HostRun` turns them into buffers.

Neighbours: `executor` makes a `HostPlan` of every plan in the stream; `launches` reads its gangs, `host_moves` its
moves.
"""

from __future__ import annotations

import msgspec

from ..model import Gang, Layout, Move, Place, Plan, Slot, Spans, device_spans, spans
from ..transfer import Piece

ONE_LANE = (0,)


class PlannedGang(msgspec.Struct, frozen=True, eq=False):
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


class HostPlan:
    """`devices`: this host's. `by_device`: one launch queue for each device, instead of one for the host."""

    __slots__ = (
        "_by_device", "_devices", "_dying", "_pattern", "arguments", "arity", "gangs", "moves", "parts", "plan",
        "reads", "receives", "sends", "slots",
    )  # fmt: skip

    def __init__(self, plan: Plan, devices: Spans, by_device: bool) -> None:
        self.plan = plan
        self._devices = devices
        self._pattern: tuple[Spans, ...] | None = None  # filled when first needed
        self.slots = len(plan.slots)
        self._by_device = by_device
        self.gangs: dict[int, PlannedGang] = {}  # by step; filled when first needed
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
        ends = [self.layout(end).place for move in self.moves.values() for end in (move.source, move.target)]
        self.parts = sum(map(self.has_part_in, [*(gang.place for gang in gangs), *ends]))

    def _used_here(self, slot: Slot) -> bool:
        used = slot.keep or slot.last >= 0 or slot.senders
        return bool(used) and self.has_part_in(slot.layout.place)

    def gang(self, index: int) -> PlannedGang | None:
        """None where there is no such gang, and where it is another island's: such a gang has no devices."""
        plan = self.plan
        gang = plan.steps[index] if 0 <= index < len(plan.steps) else None
        if not isinstance(gang, Gang) or not gang.place.grids:
            return None
        outputs = tuple((slot, plan.slots[slot].layout) for slot in gang.outputs)
        dying = tuple(self._dying.get(index, ()))
        counted = tuple(slot for slot in dict.fromkeys(gang.inputs) if plan.slots[slot].senders)
        lanes = tuple(spans.items(local(gang.place, self._devices))) if self._by_device else ONE_LANE
        planned = self.gangs[index] = PlannedGang(
            plan.program, gang.name, gang.inputs, outputs, gang.donated, dying, counted, lanes,
            bool(gang.donated or dying or counted),
        )  # fmt: skip
        return planned

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

    def layout(self, slot: int) -> Layout:
        return self.plan.slots[slot].layout


def concerns(plan: Plan, devices: Spans) -> bool:
    """Messages are for many hosts. A plan in which none of these devices has a part is for other hosts."""
    return any(spans.overlap(device_spans(place), devices) for place in places_of(plan))


def places_of(plan: Plan) -> tuple[Place, ...]:
    run_at = [step.place for step in plan.steps if isinstance(step, Gang)]
    return tuple(dict.fromkeys([*run_at, *(slot.layout.place for slot in plan.slots)]))


def local(place: Place, devices: Spans) -> Spans:
    """Which of a host's devices are in the place, counted from the host's first: alike hosts have the same."""
    return spans.shift(spans.meet(device_spans(place), devices), -devices[0][0])

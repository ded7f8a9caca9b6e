"""Plans and runs as one host sees them: what each step reads, makes and leaves free, worked out once a
plan."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

from ...model import Gang, Layout, Move, Place, Plan, Spans, device_spans, spans
from ...protocol import RunHeader
from ...transfer import Piece
from .shards import Label


class GangFacts:
    """Of one gang. Slots, not buffers: they are the same in every run of the plan, and on all alike hosts."""

    __slots__ = ("counted", "donated", "frees", "inputs", "lanes", "layouts", "name", "outputs", "program")

    def __init__(self, plan: Plan, index: int, gang: Gang, lanes: tuple[int, ...]) -> None:
        self.program = plan.program
        self.name = gang.name
        self.inputs = gang.inputs
        self.outputs = gang.outputs
        self.donated = gang.donated
        self.lanes = lanes
        self.layouts = tuple(plan.slots[slot].layout for slot in gang.outputs)
        # (slot, argument) free when this gang has finished; and slots that moves read too: when all have.
        self.frees = tuple((number, slot.arg) for number, slot in enumerate(plan.slots) if slot.last == index)
        self.counted = tuple(slot for slot in dict.fromkeys(gang.inputs) if plan.slots[slot].senders)


class PlanFacts:
    def __init__(self, plan: Plan, mine: Spans, by_device: bool) -> None:
        self.plan = plan
        self._mine = mine
        self._by_device = by_device
        self._gangs: dict[int, GangFacts] = {}
        self.sends: dict[int, tuple[Piece, ...]] = {}  # by move, once asked for
        self.receives: dict[int, tuple[Piece, ...]] = {}
        self.args = tuple((number, slot.arg) for number, slot in enumerate(plan.slots) if slot.arg >= 0)
        self.arity = max((arg + 1 for _, arg in self.args), default=0)
        self.reads = {number: len(slot.senders) for number, slot in enumerate(plan.slots) if slot.senders}
        for step in plan.steps:
            for number in dict.fromkeys(step.inputs if isinstance(step, Gang) else ()):
                if number in self.reads:
                    self.reads[number] += 1

    def __deepcopy__(self, memo: dict[int, Any]) -> PlanFacts:
        """For an executor that is split off: what follows from the plan is shared, what from who we are is not."""
        twin = copy(self)
        twin.be(self._mine)
        return twin

    def alike(self, others: Spans) -> bool:
        """Whether a host with these devices has the same part in all places of the plan."""
        return all(_local(place, self._mine) == _local(place, others) for place in self.places)

    def be(self, mine: Spans) -> None:
        """For another host, whose devices have the same part in all places of the plan."""
        self._mine = mine
        self.sends, self.receives = {}, {}

    def on(self, place: Place) -> bool:
        return spans.overlap(device_spans(place), self._mine)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        found = [step.place for step in self.plan.steps if isinstance(step, Gang)]
        return tuple(dict.fromkeys([*found, *(slot.layout.place for slot in self.plan.slots)]))

    @cached_property
    def parts(self) -> int:
        """How many steps a run of it brings this host: gangs, and halves of moves."""
        gangs = sum(isinstance(step, Gang) and self.on(step.place) for step in self.plan.steps)
        moves = [step for step in self.plan.steps if isinstance(step, Move)]
        ends = [self.layout(slot).place for move in moves for slot in (move.source, move.target)]
        return gangs + sum(map(self.on, ends))

    def concerns_us(self) -> bool:
        """Messages are for many hosts: what none of our devices has a part in is the affair of others."""
        return any(map(self.on, self.places))

    def gang(self, index: int) -> GangFacts | None:
        """None where there is no such gang."""
        facts = self._gangs.get(index)
        if facts is None:
            step = self._at(index)
            if not isinstance(step, Gang) or not step.place.grids:
                return None  # a blank: the gang is another island's
            facts = self._gangs[index] = GangFacts(self.plan, index, step, self._lanes(step.place))
        return facts

    def _lanes(self, place: Place) -> tuple[int, ...]:
        """Counted from this host's first device, so that alike hosts have the same."""
        if not self._by_device:
            return (0,)
        return tuple(spans.items(_local(place, self._mine)))

    def move(self, index: int) -> Move | None:
        step = self._at(index)
        return step if isinstance(step, Move) else None

    def _at(self, index: int) -> Gang | Move | None:
        return self.plan.steps[index] if 0 <= index < len(self.plan.steps) else None

    def compiles(self, number: int) -> bool:
        """Whether some gang that uses this code runs here; all that do have one place."""
        step = self._at(self.plan.codes[number].step) if 0 <= number < len(self.plan.codes) else None
        return isinstance(step, Gang) and self.on(step.place)

    def layout(self, slot: int) -> Layout:
        return self.plan.slots[slot].layout


def _local(place: Place, mine: Spans) -> Spans:
    """Which of a host's devices it has, counted from the host's first."""
    return spans.shift(spans.meet(device_spans(place), mine), -mine[0][0])


NOTHING: dict[int, bytes] = {}  # literals of a run without any


class Run:
    """One execution of a plan: the names of its buffers, and the reads still to come of slots that moves
    read."""

    __slots__ = ("facts", "id", "ids", "kept", "left", "literal", "parts")

    def __init__(self, header: RunHeader, facts: PlanFacts) -> None:
        self.id = header.run
        self.facts = facts
        base = header.base
        self.ids = list(range(base, base + len(facts.plan.slots)))
        for slot, arg in facts.args:
            if header.args[arg] >= 0:  # a literal may have no name of its own
                self.ids[slot] = header.args[arg]
        self.literal = dict(header.literals) if header.literals else NOTHING
        self.kept: dict[int, tuple[Label, ...]] = {}
        for slot, client, name in header.kept:
            self.kept[slot] = (*self.kept.get(slot, ()), (client, name))
        self.parts = facts.parts  # steps that have not come
        self.left = dict(facts.reads) if facts.reads else {}

    def state(self) -> tuple[Any, ...]:
        return self.facts.plan.id, self.parts, self.ids, self.literal, self.kept, self.left

    def owns(self, arg: int) -> bool:
        """Whether the run itself frees the slot: arguments are their holders', unless they came with the
        call."""
        return arg < 0 or arg in self.literal

    def last_read(self, slot: int) -> bool:
        """One more of the reads of a slot that moves read has been ordered. Was it the last, and nobody
        holds it?"""
        self.left[slot] -= 1
        here = self.facts.plan.slots[slot]
        return not self.left[slot] and not here.keep and self.owns(here.arg)

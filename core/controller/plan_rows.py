"""What the controller derives from a plan once, so that a run of it costs little: rows by step, slot and argument.

In: a plan and the places of its steps. Out: for each step its hosts, its place key, the steps that wait for it and
what is free behind it. Nothing here changes with a run, but for the caches at the end.

Neighbours: `compilation` makes and keeps them; `runs`, `admission` and `dispatch` read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec

from ..memory import Footprint, donates, effective
from ..model import Atoms, Gang, Layout, Move, Place, Plan, Spans, spans

VIEWS = 16  # of a plan that are remembered


class StepRow(msgspec.Struct, frozen=True):
    """One step: where it runs, and what entering it does, beside its own memory."""

    key: int  # of its place; of a move, the target's
    hosts: Spans
    island: int
    is_move: bool
    cost: int
    irregular: bool
    donates: bool  # whether it may take over the memory of inputs
    read_on: tuple[int, ...]  # arguments that it reads, and is not the last to read
    dying: tuple[int, ...]  # arguments whose last reader it is
    read_at: tuple[int, ...]  # results of its own run that no later gang reads
    followers: tuple[int, ...]  # steps that wait for it to enter
    feeds: tuple[int, ...]  # steps that read what it makes
    ripens: tuple[int, ...]  # gangs on other islands that its end makes ripe
    makers: tuple[int, ...]  # steps that make its inputs
    arguments: tuple[int, ...]  # that it reads


class ResultRow(msgspec.Struct, frozen=True):
    """One result of the program."""

    slot: int
    maker: int  # step; -1: it came with the call
    arg: int  # -1: it is no argument
    layout: Layout
    nbytes: int
    key: int  # of its place
    hosts: Spans
    exact: bool  # False: `nbytes` is a bound until its maker has run
    count: int = 1
    sizes: tuple[int, ...] = ()  # of several
    layouts: tuple[Layout, ...] = ()  # of several

    def part(self, at: int, count: int) -> ResultRow:
        """Some of several."""
        sizes, layouts = self.sizes[at : at + count], self.layouts[at : at + count]
        return msgspec.structs.replace(
            self, slot=self.slot + at, layout=layouts[0], nbytes=sum(sizes), count=count,
            sizes=sizes if count > 1 else (), layouts=layouts if count > 1 else (),
        )  # fmt: skip


class PlanView(msgspec.Struct, frozen=True):
    """What rows say of a call that has some arguments as one: of several as one, only the first is named. The plan does
    the same with all of them (`PlanRows.arg_edges`)."""

    steps: list[StepRow]
    unread: list[int]
    slotted: list[int]  # arguments that have a slot
    # of these: bytes on each device, and of several the bytes of each
    sizes: dict[int, tuple[int, tuple[int, ...]]]
    all_of: dict[frozenset[int], frozenset[int]] = {}  # first arguments -> all that are meant


class PlanRows:
    def __init__(self, plan: Plan, atoms: Atoms, hosts_of: Callable[[Place], Spans]) -> None:
        self.plan = plan
        places = [
            step.place if isinstance(step, Gang) else plan.slots[step.targets[0]].layout.place for step in plan.steps
        ]
        every = [*places, *(slot.layout.place for slot in plan.slots)]
        # equal sets of hosts are one object, so that they are quickly told to be equal
        same: dict[Spans, Spans] = {}
        hosts = {}
        for place in dict.fromkeys(every):
            found = hosts_of(place)
            hosts[place] = same.setdefault(found, found)
        keys = {place: atoms.intern(place) for place in hosts}
        self.keys = [keys[place] for place in places]  # by step: place of a gang, of a move's target
        self.hosts = [hosts[place] for place in places]  # by step: likewise
        self.islands = [place.island for place in places]  # by step: likewise
        self.slot_keys = [keys[slot.layout.place] for slot in plan.slots]
        self.slot_hosts = [hosts[slot.layout.place] for slot in plan.slots]
        by_island: dict[int, list[Spans]] = {}
        for place, those in hosts.items():
            by_island.setdefault(place.island, []).append(those)
        unions = {island: spans.union(*found) for island, found in by_island.items()}
        # the hosts that must know it
        self.island_hosts = {island: same.setdefault(union, union) for island, union in unions.items()}
        self.all_islands = tuple(by_island)
        self._derive_slots()
        self.steps = self._derive_steps()
        self._derive_starts()
        self.users = 0  # runs lowered to it that are not over
        self.parts: dict[int, Plan] = {}  # cut for an island
        self.sent: dict[int, int] = {}  # island -> epoch in which its hosts were told the plan
        self.ready_at = -1  # `State.epochs` when its code was ready on all its hosts
        self._atoms = atoms
        self.footprints: dict[frozenset[int], Footprint] = {}  # by arguments that are effectively donated
        # held by nobody else -> effectively donated
        self._donating: dict[frozenset[int], frozenset[int]] = {}
        self.arg_edges = self._derive_edges()
        # by the arguments that are the first of several, or alone
        self._views: dict[tuple[int, ...], PlanView] = {}
        self.whole = self._view(tuple(range(self._arity())))
        self._together: dict[tuple[int, int], list[ResultRow]] = {}
        self.unkept = self.together(0, len(self.results))  # results that nothing names
        self.unkept_at = [[row for row in self.unkept if row.maker == at] for at in range(len(plan.steps))]
        self._passed_on: dict[tuple[int, frozenset[int]], bool] = {}

    # --- derived once --------------------------------------------------------------------------------------------

    def _derive_slots(self) -> None:
        plan = self.plan
        # slots read by moves -> how many reads must end before they die
        self.sender_users: dict[int, int] = {}
        self.results_read: dict[int, None] = {}  # results that the run reads itself
        self.arg_slots = [(number, slot.arg) for number, slot in enumerate(plan.slots) if slot.arg >= 0]
        self.arg_bytes = {arg: plan.slots[number].nbytes for number, arg in self.arg_slots}
        self.arg_amounts = tuple(  # what arguments take that are all literals: (key of the place, bytes)
            (self.slot_keys[number], plan.slots[number].nbytes) for number, _ in self.arg_slots
        )
        reads: dict[int, list[int]] = {}  # slot -> gangs that read it
        for at, step in enumerate(plan.steps):
            for number in dict.fromkeys(step.inputs) if isinstance(step, Gang) else ():
                reads.setdefault(number, []).append(at)
        self._dying: dict[int, list[int]] = {}  # step -> arguments whose last reader in the order it is
        self._read_at: dict[int, list[int]] = {}
        for number, slot in enumerate(plan.slots):
            if slot.senders:
                self.sender_users[number] = len(reads.get(number, ())) + len(slot.senders)
            elif slot.last >= 0 and slot.arg >= 0:
                self._dying.setdefault(slot.last, []).append(slot.arg)
        for number in dict.fromkeys(plan.results):
            if number in reads or plan.slots[number].senders:
                self.results_read[number] = None
                if not plan.slots[number].senders:
                    self._read_at.setdefault(max(reads[number]), []).append(number)
        results = set(plan.results)
        self.unread = [  # arguments that no step reads, nor the program returns
            arg for number, arg in self.arg_slots
            if plan.slots[number].last < 0 and not plan.slots[number].senders and number not in results
        ]  # fmt: skip
        self.slot_of_arg = {arg: number for number, arg in self.arg_slots}
        self.results = [
            ResultRow(
                slot, plan.slots[slot].maker, plan.slots[slot].arg, plan.slots[slot].layout, plan.slots[slot].nbytes,
                self.slot_keys[slot], self.slot_hosts[slot], not self._is_bound(slot),
            )
            for slot in plan.results
        ]  # fmt: skip
        repeated = [slot for slot, times in Counter(plan.results).items() if times > 1]
        self._single = {*self.results_read, *repeated}  # results that are counted alone
        # Whether each result is made by a gang, and is read by no step: if its client keeps none, nothing names them.
        self.may_be_unkept = len(results) == len(plan.results) and not any(
            row.maker < 0 or row.slot in self.results_read or isinstance(plan.steps[row.maker], Move)
            for row in self.results
        )
        self.may_donate = any(
            plan.slots[slot].arg >= 0 for step in plan.steps if isinstance(step, Gang) for slot in step.donated
        )

    def _is_bound(self, slot: int) -> bool:
        """Whether the size of the slot is known only when its maker has run."""
        maker = self.plan.slots[slot].maker
        step = self.plan.steps[maker] if maker >= 0 else None
        return isinstance(step, Gang) and step.irregular

    def _derive_steps(self) -> list[StepRow]:
        plan = self.plan
        numbers = range(len(plan.steps))
        followers: list[list[int]] = [[] for _ in numbers]
        feeds: list[list[int]] = [[] for _ in numbers]
        ripens: list[list[int]] = [[] for _ in numbers]
        makers: list[tuple[int, ...]] = []
        arguments: list[tuple[int, ...]] = []
        self.late = [0] * len(plan.steps)  # by gang: producers on other islands
        for index, step in enumerate(plan.steps):
            for before in plan.after[index]:
                followers[before].append(index)
            slots = step.inputs if isinstance(step, Gang) else step.sources
            makers.append(tuple(dict.fromkeys(plan.slots[s].maker for s in slots if plan.slots[s].maker >= 0)))
            arguments.append(tuple(dict.fromkeys(plan.slots[s].arg for s in slots if plan.slots[s].arg >= 0)))
            for maker in makers[-1]:
                feeds[maker].append(index)
            for source in self._late_sources(step) if isinstance(step, Gang) else ():
                ripens[source].append(index)
                self.late[index] += 1
        return [
            StepRow(
                key=self.keys[at], hosts=self.hosts[at], island=self.islands[at],
                is_move=isinstance(step, Move), cost=step.cost if isinstance(step, Gang) else 0,
                irregular=isinstance(step, Gang) and step.irregular,
                donates=isinstance(step, Gang) and bool(step.donated),
                read_on=tuple(arg for arg in arguments[at] if arg not in self._dying.get(at, ())),
                dying=tuple(self._dying.get(at, ())), read_at=tuple(self._read_at.get(at, ())),
                followers=tuple(followers[at]), feeds=tuple(feeds[at]), ripens=tuple(ripens[at]),
                makers=makers[at], arguments=arguments[at],
            )
            for at, step in enumerate(plan.steps)
        ]  # fmt: skip

    def _late_sources(self, gang: Gang) -> list[int]:
        """A gang is late while a producer on another island, behind a move, has not finished."""
        found = []
        for number in gang.inputs:
            maker = self.plan.slots[number].maker
            step = self.plan.steps[maker] if maker >= 0 else None
            if isinstance(step, Move):
                at = step.targets.index(number) if len(step.targets) > 1 else 0
                source = self.plan.slots[step.sources[at]]
                if source.maker >= 0 and source.layout.place.island != gang.place.island:
                    found.append(source.maker)
        return found

    def _derive_starts(self) -> None:
        """Derive the lists that each run begins with a copy of."""
        self.gates = [len(after) for after in self.plan.after]
        self.first = [index for index, gates in enumerate(self.gates) if not gates]
        self.unsettled = [(2 if row.is_move else 1) + len(row.makers) for row in self.steps]

    # --- several as one ------------------------------------------------------------------------------------------

    def _arity(self) -> int:
        return max((arg + 1 for arg in self.arg_bytes), default=0)

    def _derive_edges(self) -> tuple[int, ...]:
        """The arguments with which the plan does not do the same as with the one before."""
        plan, done = self.plan, dict[int, object]()
        reading: dict[int, list[tuple[int, bool]]] = {}
        for at, step in enumerate(plan.steps):
            donated = frozenset(step.donated) if isinstance(step, Gang) else ()
            for number in dict.fromkeys(step.inputs) if isinstance(step, Gang) else ():
                reading.setdefault(number, []).append((at, number in donated))
        results = set(plan.results)
        for number, arg in self.arg_slots:
            slot, own = plan.slots[number], bool(plan.slots[number].senders) or number in results
            done[arg] = (number - arg, slot.last, tuple(reading.get(number, ())), arg if own else -1)
        return tuple(arg for arg in range(1, self._arity() + 1) if done.get(arg) != done.get(arg - 1))

    def view(self, firsts: Iterable[int]) -> PlanView:
        """Rows for a call whose arguments are counted as one up to the next of these."""
        key = tuple(firsts)
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= VIEWS:
                self._views.clear()
            found = self._views[key] = self._view(key)
        return found

    def _view(self, firsts: tuple[int, ...]) -> PlanView:
        ends = dict(pairwise((*firsts, self._arity())))
        sizes: dict[int, tuple[int, tuple[int, ...]]] = {}
        for first, end in ends.items():
            if first in self.arg_bytes:
                each = tuple([self.arg_bytes[arg] for arg in range(first, max(end, first + 1))])
                sizes[first] = sum(each), each if len(each) > 1 else ()
        steps = self.steps
        if len(firsts) < self._arity():
            steps = [
                msgspec.structs.replace(
                    row, read_on=tuple(arg for arg in row.read_on if arg in ends),
                    dying=tuple(arg for arg in row.dying if arg in ends),
                    arguments=tuple(arg for arg in row.arguments if arg in ends),
                )
                for row in steps
            ]  # fmt: skip
        unread = [arg for arg in self.unread if arg in ends]
        return PlanView(steps, unread, [arg for arg in self.slot_of_arg if arg in ends], sizes)

    def all_of(self, view: PlanView, firsts: frozenset[int]) -> frozenset[int]:
        """All arguments that these stand for."""
        found = view.all_of.get(firsts)
        if found is None:
            many = (range(arg, arg + max(1, len(view.sizes[arg][1]))) for arg in firsts if arg in view.sizes)
            found = view.all_of[firsts] = firsts.union(*many)
        return found

    def together(self, index: int, count: int) -> list[ResultRow]:
        """These results: those that are made as one, and go on as one, in one row."""
        found = self._together.get((index, count))
        if found is None:
            if len(self._together) >= VIEWS:
                self._together.clear()
            found = self._together[index, count] = []
            start = index
            for end in range(index + 1, index + count + 1):
                if end == index + count or not self._as_one(self.results[end - 1], self.results[end]):
                    found.append(_as_row(self.results[start:end]))
                    start = end
        return found

    def _as_one(self, one: ResultRow, other: ResultRow) -> bool:
        alike = (one.slot + 1, one.maker, one.key, one.exact) == (other.slot, other.maker, other.key, True)
        if not alike or one.maker < 0 or isinstance(self.plan.steps[one.maker], Move):
            return False
        return not any(row.arg >= 0 or row.slot in self._single for row in (one, other))

    # --- kept for a set of donated arguments ---------------------------------------------------------------------

    def footprint(self, donated: frozenset[int]) -> Footprint:
        """The footprint of a run that takes over the memory of these arguments."""
        found = self.footprints.get(donated)
        if found is None:
            found = self.footprints[donated] = Footprint(self.plan, donated, self._atoms)
        elif found.version != self._atoms.number:
            found.refresh(self._atoms)
        return found

    def donated(self, sole: frozenset[int]) -> frozenset[int]:
        """Arguments whose memory a run takes over, if nobody else holds these."""
        found = self._donating.get(sole)
        if found is None:
            found = self._donating[sole] = effective(self.plan, sole)
        return found

    def donates(self, step: int, donated: frozenset[int]) -> bool:
        """Whether this gang passes its donated inputs' memory on, if these arguments are effectively donated."""
        found = self._passed_on.get((step, donated))
        if found is None:
            found = self._passed_on[step, donated] = donates(self.plan, step, donated)
        return found


def _as_row(rows: list[ResultRow]) -> ResultRow:
    if len(rows) == 1:
        return rows[0]
    sizes = tuple([row.nbytes for row in rows])
    layouts = tuple([row.layout for row in rows])
    return msgspec.structs.replace(rows[0], nbytes=sum(sizes), count=len(rows), sizes=sizes, layouts=layouts)

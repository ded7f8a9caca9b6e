"""Programs of one slice have an executor of their own: slices that overlap do not divide the island's parts.

What a program of one slice does on a host has nothing to do with programs of other slices, as long as its gangs wait
for nothing but the stream: the same launches follow at the same times, whichever other slices the host is in. So such
programs are told to an executor that knows them alone, and a gang costs the same, however many slices overlap.

    PartsBySlice.shares(message)    what of an order concerns which slice, and what concerns the island's parts

That ends for a slice as soon as it touches anything else: its arrays are read, moved or given to other programs; memory
is short, so that something waits for gangs of others; or a gang of other programs before it on these hosts may wait for
contents, and a host launches gangs in their order. Then the island's parts take in what the slice's executor knows
(`_return`), and have its programs from there on. This may be earlier than it must be: what either knows is the same.

Neighbours: `parts` are the island's; `island` asks what an order concerns; `shared_executor` joins executors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from copy import copy
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from core.model import Gang, Island, Place, Plan, Range, Spans, ranged, spans
from core.protocol import messages as m

from .alike import PlaceFacts
from .parts import CohortPart, Parts

ORDERED = (m.GangStep, m.SendStep, m.RecvStep, m.SpillStep, m.RestoreStep)
KEPT = 256  # runs whose names are remembered, whether or not anything of them is left


class SlicePrograms:
    """The programs of one slice. One executor knows them, for all its hosts (`part`): which devices a host has in the
    slice matters only for arrays that leave it."""

    __slots__ = ("hosts", "part", "place", "plans")

    def __init__(self, place: Place, part: CohortPart) -> None:
        self.place, self.part, self.hosts = place, part, part.members
        self.plans: dict[int, int] = {}  # each with the number of its slots


class RunOfSlice(NamedTuple):
    """A run of a slice's program, and the names of its buffers: from `base` on, before `end`."""

    base: int
    end: int
    run: int
    of: SlicePrograms


Owner = SlicePrograms | None  # None: the island's parts


class Waits:
    """Which of the island's gangs may wait for anything but the stream: for contents, copies and views, and for gangs
    that do. `last`: the last seq of all these; `hosts`: on which they are; `seen`: the last seq that was ordered."""

    def __init__(self) -> None:
        self.last, self.hosts = -1, spans.EMPTY
        self.seen = -1

    def see(self, message: m.Ordered, owner_of: Callable[[int], Owner]) -> SlicePrograms | None:
        """Takes in an order, or stops at a gang of a slice that comes behind one of these, and returns the slice."""
        if self.last < message.settled:
            self.hosts = spans.EMPTY
        for header in message.runs:
            if header.after >= 0:
                self._add(header.after, message.hosts)
        for step in message.steps:
            if isinstance(step, ORDERED):
                self.seen = step.seq
            if isinstance(step, m.ViewStep):  # it waits for its sources, all of which were ordered before
                self._add(max(self.seen, message.settled), step.hosts)
            elif isinstance(step, m.RecvStep | m.RestoreStep):
                self._add(step.seq, step.hosts)
            elif (
                isinstance(step, m.GangStep) and self.last >= message.settled and spans.overlap(step.hosts, self.hosts)
            ):
                owner = owner_of(step.run)
                if owner is not None:
                    return owner
                self._add(step.seq, step.hosts)
        return None

    def _add(self, seq: int, hosts: Spans) -> None:
        self.last, self.hosts = max(self.last, seq), spans.union(self.hosts, hosts)


class PartsBySlice:
    def __init__(self, island: Island, parts: Parts, facts: PlaceFacts, differ_later: bool, past: bool) -> None:
        """`differ_later`: hosts will be simulated one by one. Then all that each knows is in one executor. `past`: the
        hosts have a past, of which nothing is known here."""
        self._island, self._parts, self._facts = island, parts, facts
        self._differ_later, self._past = differ_later, past
        # by place: slices whose programs have executors of their own
        self.known: dict[Place, SlicePrograms] = {}
        self._of_plan: dict[int, SlicePrograms] = {}
        self._of_forgotten: dict[int, SlicePrograms] = {}  # by plan, while its code may be under way
        self._of_run: dict[int, SlicePrograms] = {}
        self.of_gang: dict[int, SlicePrograms] = {}  # those that are under way
        self._runs: list[RunOfSlice] = []  # by `base`
        self._bases: list[int] = []  # of these
        self._most = KEPT
        self._waits = Waits()

    # --- who is told ----------------------------------------------------------------------------------------

    def of_code(self, plan: int, hosts: Spans) -> list[CohortPart]:
        """The parts among these hosts that know this plan, or knew it when its code was asked for."""
        owner = self._of_plan.get(plan) or self._of_forgotten.get(plan)
        if owner is None:
            return self._parts.among(hosts)
        return [owner.part] if spans.overlap(owner.hosts, hosts) else []

    def overlap(self, hosts: Spans) -> bool:
        """Whether some of these hosts have programs of a slice."""
        return any(spans.overlap(each.hosts, hosts) for each in self.known.values())

    def shares(
        self, message: m.Ordered, number: int, settled: int
    ) -> tuple[list[tuple[Owner, m.Ordered]], list[CohortPart]]:
        """What of an order concerns which slice, and what concerns the island's parts; and which of these have been
        divided meanwhile. `number`, `settled`: of the order before."""
        for plan in () if self._differ_later else message.plans:
            self._learn(plan)
        if not self.known:
            self.see_waits(message)
            return [(None, message)], []
        if len(self._runs) > self._most:
            self._tidy()
        self._name(message)
        divided: list[CohortPart] = []
        for owner in self._touched(message):
            divided += self._return(owner, number, settled)
        shares = self._cut(message)
        self._take(message)
        return shares, divided

    def _learn(self, plan: Plan) -> None:
        """Takes in a plan, which has executors of its own if it is of one slice."""
        places = {step.place for step in plan.steps if isinstance(step, Gang)}
        places |= {slot.layout.place for slot in plan.slots}
        if len(places) != 1 or not all(isinstance(step, Gang) for step in plan.steps):
            return
        (place,) = places
        if not place.grids or place.island != self._island.index:
            return
        hosts = self._island.hosts_of(place)
        if spans.count(hosts) > 1 and not all(step.collective for step in plan.steps):  # type: ignore[union-attr]
            return  # its hosts end a gang one by one, and are told so
        if hosts == self._parts.everyone or spans.minus(hosts, self._parts.everyone):
            return
        owner = self.known.get(place)
        if owner is None:
            owner = self.known[place] = SlicePrograms(place, self._blank(hosts))
        owner.plans[plan.id] = len(plan.slots)
        self._of_plan[plan.id] = owner

    def _blank(self, hosts: Spans) -> CohortPart:
        known = self._parts.of_host(hosts[0][0]).executor
        return CohortPart(self._island, known.blank(hosts), of_slice=True)

    # --- what touches anything else -------------------------------------------------------------------------

    def _touched(self, message: m.Ordered) -> Iterable[SlicePrograms]:
        """The slices that must not go on by themselves."""
        self._see_past(message)
        found: dict[SlicePrograms, None] = {}

        def touch(owners: Iterable[Owner]) -> None:
            found.update((owner, None) for owner in owners if owner is not None)

        for header in message.runs:
            owner = self._of_run.get(header.run)
            for other in self._named(header):
                if other is not owner:
                    touch((owner, other))
            if header.after >= 0:
                touch(self._here(message.hosts))
        for step in message.steps:
            if type(step) is not m.GangStep and type(step) is not m.FreeStep:
                touch(self._touched_by(step))
        while not self.none_waits(message):  # those behind a gang that may wait, which may be one found so far
            waits = copy(self._waits)
            late = waits.see(message, lambda run: self._owner(run, found))
            if late is None:
                self._waits = waits
                break
            touch((late,))
        return found

    def _touched_by(self, step: m.Step) -> list[Owner]:
        found: list[Owner] = []
        if isinstance(step, m.RecvStep | m.RestoreStep) and step.after >= 0:
            found += self._here(step.hosts)
        if isinstance(step, m.SendStep):
            found.append(self._of_name(step.step) if step.client else self._of_run.get(step.run))
        elif isinstance(step, m.SpillStep | m.RestoreStep):
            found.append(self._of_name(step.buffer))
        elif isinstance(step, m.ViewStep):
            found += [owner for named in step.sources for owner, _ in self._owners(named)]
        return found

    def _owner(self, run: int, but: Container[Owner]) -> Owner:
        owner = self._of_run.get(run)
        return None if owner in but else owner

    def none_waits(self, message: m.Ordered) -> bool:
        """Whether none of the island's gangs waits for anything but the stream, as far as this order says. If so, this
        is all that there is to know of the order, and it has been taken in."""
        if self._past or self._waits.last >= message.settled:
            return False
        for header in message.runs:
            if header.after >= 0:
                return False
        seen = self._waits.seen
        for step in message.steps:
            kind = type(step)
            if kind is m.RecvStep or kind is m.RestoreStep or kind is m.ViewStep:
                return False
            if kind in ORDERED:
                seen = step.seq  # type: ignore[union-attr]
        self._waits.seen = seen
        return True

    def see_waits(self, message: m.Ordered) -> None:
        """Takes in which of the island's gangs may wait for anything but the stream. There are no slices."""
        self._see_past(message)
        self._waits.see(message, lambda run: None)

    def _see_past(self, message: m.Ordered) -> None:
        """Any gang of the past may have waited."""
        if self._past:
            for step in message.steps:
                seq: int = getattr(step, "seq", -1)
                if seq >= 0 and not isinstance(step, m.AskStep | m.CutStep):
                    self._waits.last, self._waits.hosts = seq - 1, self._parts.everyone
                    self._past = False
                    return

    def _here(self, hosts: Spans) -> list[SlicePrograms]:
        return [each for each in self.known.values() if spans.overlap(each.hosts, hosts)]

    def _named(self, header: m.RunHeader) -> list[Owner]:
        """The owners of the arguments of a run that did not come with the call."""
        literals = {number for number, _ in header.literals}
        found: list[Owner] = []
        number = 0  # of an argument; of a range, the first one's
        for named in header.args:
            if number not in literals:
                found += [owner for owner, _ in self._owners(named)]
            number += 1 if isinstance(named, int) else named.count
        return found

    def _return(self, owner: SlicePrograms, number: int, settled: int) -> list[CohortPart]:
        """The island's parts take in what this slice's know; returns those that were divided for that."""
        divided: list[CohortPart] = []
        owner.part.executor.passed_on(number, settled)
        for members in sorted(filter(None, self._facts.patterns(owner.place))):
            divided += self._parts.set_apart(members)
            for part in self._parts.among(members):
                part.executor.passed_on(number, settled)
                part.executor.take_in(owner.part.executor)
        self._forget(owner)
        return divided

    def _forget(self, owner: SlicePrograms) -> None:
        self.known = {place: each for place, each in self.known.items() if each is not owner}
        for table in (self._of_plan, self._of_forgotten, self._of_run, self.of_gang):
            for key in [key for key, each in table.items() if each is owner]:
                del table[key]
        self._keep([each for each in self._runs if each.of is not owner])

    # --- what concerns whom ---------------------------------------------------------------------------------

    def _cut(self, message: m.Ordered) -> list[tuple[Owner, m.Ordered]]:
        shares: defaultdict[Owner, OrderShare] = defaultdict(OrderShare)
        for plan in message.plans:
            shares[self._of_plan.get(plan.id)].plans.append(plan)
        for header in message.runs:
            shares[self._of_run.get(header.run)].runs.append(header)
        for at, step in enumerate(message.steps):
            if type(step) is m.GangStep:
                whose = self._of_run.get(step.run)
                if whose is not None:
                    self.of_gang[step.seq] = whose
                shares[whose].put(at, step)
            else:
                for owner, mine in self._shared(step):
                    shares[owner].put(at, mine)
        if len(shares) > 1:
            return [(owner, share.of(message)) for owner, share in shares.items()]
        return [(next(iter(shares), None), message)]

    def _shared(self, step: m.Step) -> Iterable[tuple[Owner, m.Step]]:
        """Each one's share of a step that is no gang."""
        match step:
            case m.FreeStep():
                return self._freed(step)
            case m.CompileStep():
                return ((self._of_plan.get(step.plan), step),)
            case m.AskStep() | m.CutStep():
                return ((self.of_gang.get(step.seq), step),)
            case m.ForgetStep():
                return self._forgotten(step)
            case _:
                return ((None, step),)

    def _freed(self, step: m.FreeStep) -> list[tuple[Owner, m.FreeStep]]:
        names: dict[Owner, list[int | Range]] = {}
        for named in step.buffers:
            for owner, mine in self._owners(named):
                names.setdefault(owner, []).append(mine)
        if len(names) == 1:
            return [(next(iter(names)), step)]
        return [(owner, m.FreeStep(tuple(mine))) for owner, mine in names.items()]

    def _forgotten(self, step: m.ForgetStep) -> list[tuple[Owner, m.ForgetStep]]:
        numbers: dict[Owner, tuple[list[int], list[int]]] = {}
        for run in step.runs:
            numbers.setdefault(self._of_run.get(run), ([], []))[0].append(run)
        for plan in step.plans:
            numbers.setdefault(self._of_plan.get(plan), ([], []))[1].append(plan)
        return [(owner, m.ForgetStep(tuple(runs), tuple(plans))) for owner, (runs, plans) in numbers.items()]

    def _name(self, message: m.Ordered) -> None:
        """Takes in the runs of slices' programs that an order begins, and the names of their buffers."""
        for header in message.runs:
            owner = self._of_plan.get(header.plan)
            if owner is None:
                continue
            self._of_run[header.run] = owner
            end = header.base + owner.plans[header.plan]
            at = bisect_left(self._bases, header.base)
            self._bases.insert(at, header.base)
            self._runs.insert(at, RunOfSlice(header.base, end, header.run, owner))

    def _take(self, message: m.Ordered) -> None:
        """Takes in what an order does with slices' programs."""
        for step in message.steps:
            if isinstance(step, m.ForgetStep):
                for plan in step.plans:
                    owner = self._of_plan.pop(plan, None)
                    if owner is not None:
                        owner.plans.pop(plan, None)
                        self._of_forgotten[plan] = owner
                self._of_forgotten = {
                    plan: owner for plan, owner in self._of_forgotten.items() if not owner.part.executor.may_merge
                }

    def _tidy(self) -> None:
        """Forgets runs of which nothing is left, and slices of which nothing is."""
        kept: list[RunOfSlice] = []
        known: dict[int, tuple[set[int], list[int]]] = {}  # by owner: its open runs, and its buffers
        for owner in self.known.values():
            buffers, runs = owner.part.executor.knows()
            known[id(owner)] = set(runs), sorted(buffers)
        for each in self._runs:
            open_runs, names = known.get(id(each.of), ((), ()))
            at = bisect_left(names, each.base)
            if each.run in open_runs or (at < len(names) and names[at] < each.end):
                kept.append(each)
        self._keep(kept)
        live = {each.run for each in kept}
        self._of_run = {run: owner for run, owner in self._of_run.items() if run in live}
        for owner in list(self.known.values()):
            if not owner.plans and owner.part.executor.idle:
                self._forget(owner)
        self._most = KEPT + 2 * len(self._runs)

    # --- names ----------------------------------------------------------------------------------------------

    def _keep(self, runs: list[RunOfSlice]) -> None:
        self._runs, self._bases = runs, [each.base for each in runs]

    def _of_name(self, name: int) -> Owner:
        at = bisect_right(self._bases, name) - 1
        return self._runs[at].of if at >= 0 and name < self._runs[at].end else None

    def _owners(self, named: int | Range) -> list[tuple[Owner, int | Range]]:
        """The owners of these names; a range for names with one owner."""
        if isinstance(named, int):
            return [(self._of_name(named), named)]
        found: list[tuple[Owner, int | Range]] = []
        first, stop = named.first, named.first + named.count
        while first < stop:
            at = bisect_right(self._bases, first) - 1
            if at >= 0 and first < self._runs[at].end:
                owner: Owner = self._runs[at].of
                end = min(stop, self._runs[at].end)
            else:
                owner = None
                end = min(stop, self._runs[at + 1].base) if at + 1 < len(self._runs) else stop
            found.append((owner, ranged(first, end - first)))
            first = end
        return found


class OrderShare(msgspec.Struct, eq=False):
    """What of an order concerns one owner."""

    plans: list[Plan] = []
    runs: list[m.RunHeader] = []
    at: list[int] = []  # where its steps are in the order
    steps: list[Any] = []

    def put(self, at: int, step: Any) -> None:
        self.at.append(at)
        self.steps.append(step)

    def of(self, message: m.Ordered) -> m.Ordered:
        runs = [replace(header, at=bisect_left(self.at, header.at)) if header.at else header for header in self.runs]
        return replace(message, plans=tuple(self.plans), runs=tuple(runs), steps=tuple(self.steps))

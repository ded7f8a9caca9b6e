"""Hosts that behave alike, so that one executor may stand for all of them; and what tells them apart.

Members are alike as long as they are told the same and say the same: in every step all of them take part or none
does, every place has the same part of each one's devices, and contents travel to or from all of them together, or
none. A message that names some members and not others divides them: `divides` says into which parts, before anything
is done.

Neighbours: `parts` adds when things happen at each host; `shared_executor` does what all of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from core import protocol as p
from core.host import Executor
from core.model import (
    Gang,
    Hosts,
    Illegal,
    Layout,
    Layouts,
    Place,
    Plan,
    Spans,
    device_spans,
    ranges,
    receives,
    sends,
    spans,
)
from core.transfer import ALL, from_client, hosts_of, senders_to_client, to_client

from .shared_executor import SharedExecutor

KEPT = 4096  # answers of each kind that are remembered
OF_ONE = (p.LaunchFailed, p.DeviceLost)  # never of many hosts alike
WITH_HOSTS = (p.GangStep, p.SendStep, p.RecvStep, p.ViewStep, p.SpillStep, p.RestoreStep)
OF_CONTENTS = (p.SendStep, p.RecvStep)

Key = TypeVar("Key", bound=Hashable)


class AlikeHosts(SharedExecutor):
    """An executor that stands for `members`, hosts of one island.

    It remembers what has been found not to divide them."""

    def __init__(
        self, members: Spans, hosts: Hosts, *, lane: str = "host", incarnation: int = 0,
        past: SharedExecutor | None = None, facts: PlaceFacts | None = None, of_slice: bool = False,
    ) -> None:  # fmt: skip
        """`past`: one whose past is theirs. `of_slice`: it is told of programs of one slice alone, whose hosts these
        are."""
        if past is not None:
            lane, incarnation = past.lane, past._incarnation
        super().__init__(members[0][0], hosts, lane=lane, incarnation=incarnation, members=members)
        if past is not None and not of_slice:
            self.copy_of(past)
        elif past is not None:
            self.sit(past)
        self._of_slice = of_slice
        self._facts = facts or PlaceFacts(hosts)
        # Gets that only one of the members sends, by transfer. To the others it makes no difference that their executor
        # sends it, too: only copies of the buffer would wait for that.
        self._sent_by_one: dict[int, Spans] = {}
        self._forget_undivided()

    def stand_for(self, members: Spans) -> None:
        super().stand_for(members)
        self._forget_undivided()

    def _forget_undivided(self) -> None:
        members = self.members
        self._first = spans.one(self.host)
        self._undivided = self._of_slice or spans.count(members) == 1  # whatever they are told
        self._even: dict[Spans, bool] = {}  # of hosts: whether all members are among them; else none is
        self._same: dict[Place, None] = {}  # every member has the same part of it
        self._passed: p.Ordered | None = None  # the last message that was found to divide nobody

    def handle(self, event: Any, now: int) -> list[p.Command]:
        """As each member's executor would. Raises Illegal for what is not each member's alike."""
        if not self._undivided:
            kind = type(event)
            if kind is p.Ordered:
                if event is not self._passed:
                    self._refuse_if_dividing(event)
            elif kind is p.Sent:
                self._sent_by_one.pop(event.transfer, None)
            elif kind in OF_ONE or getattr(event, "blame", None) is not None:
                self._refuse_if_of_one(event)
        return super().handle(event, now)

    def _refuse_if_dividing(self, message: p.Ordered) -> None:
        parts = self.divides(message)
        if parts:
            who = spans.text(self.members)
            names = "; ".join(map(spans.text, parts[:4])) + (" ..." if len(parts) > 4 else "")
            raise Illegal(f"message {message.number} divides hosts {who}: split them first ({names})")

    def _refuse_if_of_one(self, event: Any) -> None:
        blame: p.Blame | None = getattr(event, "blame", None)
        if isinstance(event, OF_ONE) or (blame is not None and blame.host < 0):
            who = spans.text(self.members)
            raise Illegal(f"{type(event).__name__} with a blame is one host's: split it from hosts {who} first")

    def divides(self, message: p.Ordered) -> tuple[Spans, ...]:
        """() if the message treats all members alike; else the parts into which they must be split before it."""
        if self._undivided or message is self._passed:
            return ()
        cuts: list[Spans] = []
        busy: list[Spans] = []
        gets_of_one = message.hosts not in self._even and self._only_gets_of_one(message)
        if message.hosts not in self._even and not gets_of_one:
            self._cut(cuts, message.hosts)
        for plan in message.plans:
            self._places(cuts, plan)
        for step in message.steps:
            if type(step) is p.GangStep and step.hosts in self._even:
                continue
            if isinstance(step, WITH_HOSTS) and not self._one_sends(step, gets_of_one):
                self._step(cuts, busy, step, message)
        parts = parted(self.members, cuts, spans.union(*busy)) if cuts or any(busy) else ()
        if len(parts) > 1:
            return parts
        self._passed = message
        return ()

    def _step(self, cuts: list[Spans], busy: list[Spans], step: Any, message: p.Ordered) -> None:
        if step.hosts not in self._even:
            self._cut(cuts, step.hosts)
        if isinstance(step, p.ViewStep):
            for same in self._facts.viewed(step):
                self._cut(cuts, same)
        if isinstance(step, p.SpillStep | p.RestoreStep):
            cuts += self._sent_by_one.values()
        if not self._even.get(step.hosts, True) or not isinstance(step, p.SendStep | p.RecvStep):
            return
        if not self._facts.together(step.transfer):
            busy.append(self._ends(step, NamesWithMessage(message, self)))
        elif step.client:
            for same in self._pieces(step, message):
                self._cut(cuts, spans.meet(same, step.hosts))
        else:
            self._cut(cuts, self._facts.hosts_at(step.transfer, isinstance(step, p.SendStep)))

    def _one_sends(self, step: Any, is_of_one: bool) -> bool:
        """Whether this is a get that one member sends, and that need not divide it from the others. `is_of_one`: see
        `_is_of_one`, if that is known."""
        if not (is_of_one or self._is_of_one(step)):
            return False
        if step.hosts != self._first and not spans.within(step.hosts, self.members):
            return False
        self._sent_by_one[step.transfer] = step.hosts
        return True

    def _is_of_one(self, step: Any) -> bool:
        """Whether this is a get of one shard, which one host has, or that the first member sends: the executor does
        what that host does."""
        if not (isinstance(step, p.SendStep) and step.client and self._facts.one_may_send):
            return False
        return (step.shard != ALL or step.hosts == self._first) and bool(self._facts.together(step.transfer))

    def _only_gets_of_one(self, message: p.Ordered) -> bool:
        return bool(message.steps) and not message.runs and all(map(self._is_of_one, message.steps))

    def sender_of(self, transfer: int) -> Spans | None:
        """The only member that sends this get, if the others do not."""
        return self._sent_by_one.get(transfer)

    # --- split and join -----------------------------------------------------------------------------------

    def split(self, part: Spans) -> AlikeHosts:
        """This part of the members goes its own way, with the same past; this one keeps the rest."""
        rest = spans.minus(self.members, part)
        if not part or not rest or spans.minus(part, self.members):
            raise Illegal(
                f"hosts {spans.text(part)} are to be split from {spans.text(self.members)}: name some and not "
                "all of them"
            )
        twin = AlikeHosts(part, self.hosts, past=self, facts=self._facts)
        self.stand_for(rest)
        twin._sent_by_one = self._sent_by_one.copy()
        return twin

    def drop_others_sends(self) -> int:
        """After a split: forgets gets that no member sends. Returns how many of them are open."""
        others = [number for number, host in self._sent_by_one.items() if not spans.within(host, self.members)]
        for transfer in others:
            del self._sent_by_one[transfer]
        return sum([self.without_send(transfer) for transfer in others])

    def blank(self, members: Spans) -> AlikeHosts:
        """One that knows of no program, for hosts of a slice: it is to be told of programs of that slice alone."""
        return AlikeHosts(members, self.hosts, past=self, facts=self._facts, of_slice=True)

    def take_in(self, other: SharedExecutor) -> None:
        if spans.minus(self.members, other.members):
            raise Illegal(f"hosts {spans.text(self.members)} know nothing of {spans.text(other.members)}")
        super().take_in(other)
        self._passed = None

    def absorb(self, others: Sequence[AlikeHosts]) -> None:
        """Stands for the others' members too, whose executors are in the same state; they are of no more use."""
        members = spans.union(self.members, *(other.members for other in others))
        if spans.count(members) != sum(spans.count(each.members) for each in (self, *others)):
            raise Illegal(f"hosts {spans.text(self.members)} cannot take in hosts of their own")
        self.stand_for(members)

    # --- what divides -------------------------------------------------------------------------------------

    def _cut(self, cuts: list[Spans], hosts: Spans) -> bool:
        both = spans.meet(self.members, hosts)
        if both in (self.members, spans.EMPTY):
            _remember(self._even, hosts, bool(both))
            return False
        cuts.append(hosts)
        return True

    def _places(self, cuts: list[Spans], plan: Plan) -> None:
        places = [step.place for step in plan.steps if isinstance(step, Gang)]
        places += [slot.layout.place for slot in plan.slots]
        for place in dict.fromkeys(places):
            if place not in self._same:
                cut = [self._cut(cuts, same) for same in self._facts.patterns(place)]
                if not any(cut):
                    _remember(self._same, place, None)

    def _pieces(self, step: p.SendStep | p.RecvStep, message: p.Ordered) -> tuple[Spans, ...]:
        """The hosts of a put or get that have as many pieces of it."""
        if isinstance(step, p.RecvStep):
            layout = step.layout
        else:
            layout = NamesWithMessage(message, self).layout(step.step)
        return () if layout is None else self._facts.pieces(layout, isinstance(step, p.SendStep))

    def _ends(self, step: p.SendStep | p.RecvStep, names: NamesWithMessage) -> Spans:
        """Members that something travels to or from: no two of them send or receive the same."""
        taking = spans.meet(self.members, step.hosts)
        if not taking or step.client:
            layout = names.layout(step.step) if taking and isinstance(step, p.SendStep) else None
            if layout is None or not isinstance(step, p.SendStep):
                return taking
            return spans.meet(taking, senders_to_client(layout, self.hosts, step.shard))
        plan = names.plan_of(step.run)
        move = plan.steps[step.step] if plan is not None and 0 <= step.step < len(plan.steps) else None
        if plan is None or move is None or isinstance(move, Gang):
            return spans.EMPTY  # each will say that it makes no sense
        if move.sparse:
            return taking
        sources, targets = (tuple([plan.slots[slot].layout for slot in ends]) for ends in (move.sources, move.targets))
        return self._facts.ends(isinstance(step, p.SendStep), sources, targets, taking)


class PlaceFacts:
    """What has been found about places and moves: the same for all executors of an island.

    `together`: whether the hosts of a transfer go together. `hosts_at`: which hosts then send in a move, or receive.
    `one_may_send`: whether a get that one of alike hosts sends may leave them together."""

    def __init__(
        self, hosts: Hosts, together: Callable[[int], object] = lambda transfer: False,
        hosts_at: Callable[[int, bool], Spans] = lambda transfer, sending: spans.EMPTY,
        one_may_send: bool = False,
    ) -> None:  # fmt: skip
        self._hosts, self.together, self.hosts_at = hosts, together, hosts_at
        self.one_may_send = one_may_send
        self.patterns = lru_cache(maxsize=KEPT)(partial(patterns, hosts=hosts))
        self.pieces = lru_cache(maxsize=KEPT)(self._pieces)
        self._busy_ends = lru_cache(maxsize=KEPT)(self._ends)
        self._viewed: tuple[p.ViewStep | None, tuple[Spans, ...]] = None, ()  # the last answer

    def viewed(self, step: p.ViewStep) -> tuple[Spans, ...]:
        """The hosts of a view that share the same buffers, on the same devices of theirs."""
        if self._viewed[0] is not step:
            shared: dict[int, list[int]] = {}
            sources = ranges.each(step.sources)
            for device, source in zip(step.layout.place.devices(), sources, strict=False):
                shared.setdefault(self._hosts.host_of(device), []).append(source)
            alike: dict[tuple[int, ...], list[int]] = {}
            for host, its in shared.items():
                alike.setdefault(tuple(its), []).append(host)
            groups = tuple([spans.of(hosts) for hosts in alike.values()])
            self._viewed = step, (*groups, *self.patterns(step.layout.place))
        return self._viewed[1]

    def _pieces(self, layout: Layout, sending: bool) -> tuple[Spans, ...]:
        """The hosts that have pieces of what a client puts or gets, those together that have as many."""
        pieces, alike = to_client if sending else from_client, dict[int, list[int]]()
        for host in hosts_of(layout.place, self._hosts):
            alike.setdefault(len(pieces(layout, 1, host, self._hosts)), []).append(host)
        return tuple([spans.of(hosts) for number, hosts in alike.items() if number])

    def ends(self, sending: bool, sources: Layouts, targets: Layouts, among: Spans) -> Spans:
        """Those of these hosts that have pieces to send, or to receive."""
        return spans.meet(self._busy_ends(sending, sources, targets), among)

    def _ends(self, sending: bool, sources: Layouts, targets: Layouts) -> Spans:
        pieces = sends if sending else receives
        hosts = hosts_of((sources if sending else targets)[0].place, self._hosts)
        alike = dict.fromkeys(zip(sources, targets, strict=True))
        return spans.of(host for host in hosts if any(pieces(*pair, host, self._hosts) for pair in alike))


class NamesWithMessage:
    """Plans and layouts that an executor knows, and those that a message brings itself."""

    def __init__(self, message: p.Ordered, known: Executor) -> None:
        self._message, self._known = message, known

    def plan(self, number: int) -> Plan | None:
        brought = [plan for plan in self._message.plans if plan.id == number]
        return brought[-1] if brought else self._known.plan(number)

    def plan_of(self, run: int) -> Plan | None:
        brought = [header.plan for header in self._message.runs if header.run == run]
        return self.plan(brought[-1]) if brought else self._known.plan_of(run)

    def layout(self, buffer: int) -> Layout | None:
        for step in self._message.steps:
            if isinstance(step, p.RecvStep) and step.client and step.step == buffer:
                return step.layout
            if isinstance(step, p.ViewStep) and step.buffer == buffer:
                return step.layout
        for run in self._message.runs:
            plan, args = self.plan(run.plan), ranges.each(run.args)
            for slot, facts in enumerate(plan.slots if plan is not None else ()):
                name = args[facts.arg] if 0 <= facts.arg < len(args) else -1
                if buffer == (run.base + slot if name < 0 else name):
                    return facts.layout
        return self._known.layout_of(buffer)


def parted(members: Spans, cuts: list[Spans], single: Spans) -> tuple[Spans, ...]:
    """Members that are in the same of the cuts are one part; those of `single` are one each. In host order."""
    rest = spans.minus(members, single)
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for low, high, within in spans.pieces([rest, *[spans.meet(cut, rest) for cut in dict.fromkeys(cuts)]]):
        groups.setdefault(within, []).append((low, high))
    parts = [spans.normal(pairs) for pairs in groups.values()] + [spans.one(h) for h in spans.items(single)]
    return tuple(sorted(parts))


def patterns(place: Place, hosts: Hosts) -> tuple[Spans, ...]:
    """The hosts that have devices of it, those together that have the same ones (first, second ...) of theirs."""
    whole: list[tuple[int, int]] = []
    partly: dict[int, list[tuple[int, int]]] = {}
    for low, high in device_spans(place):
        first, last = hosts.host_of(low), hosts.host_of(high - 1)
        start, stop = first, last + 1
        for host in dict.fromkeys((first, last)):
            own = hosts.devices_of(host)
            if low > own.start or high < own.stop:
                part = (max(low, own.start) - own.start, min(high, own.stop) - own.start)
                partly.setdefault(host, []).append(part)
                start, stop = (start + 1, stop) if host == first else (start, stop - 1)
        if start < stop:
            whole.append((start, stop))
    alike: dict[Spans, list[int]] = {}
    for host, parts in partly.items():
        alike.setdefault(tuple(parts), []).append(host)
    return (spans.normal(whole), *map(spans.of, alike.values()))


def _remember(answers: dict[Key, Any], key: Key, answer: Any) -> None:
    if len(answers) >= KEPT:
        answers.clear()
    answers[key] = answer

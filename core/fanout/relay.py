"""The relay of one host: it passes orders down the tree unchanged, and combines reports on their way up.

Down: an `Ordered` goes, as the same object, to each child that has one of its hosts below it, and to the executor of
this host. Messages that the inlet refuses are dropped. Up: a report about a step waits until all hosts below that take
part in the step have reported, then goes up as one report with merged spans. The relay knows who takes part from the
orders that it passed down. A report about a step that it has not seen (one that is repeated after a new seat) goes up
in the turn in which it came. All reports of a turn go up as one message (`flush`).

Some reports do not wait for all hosts, because some hosts may never report. `Trouble` and `Lost` go up at once, `Beat`
on its period. `Arrived` (the watchdog wants to know who is missing) and `Compiled` (some hosts may compile for long)
go up after `patience`, as far as they have come.

A new seat drops all reports that are being combined; executors then repeat those that are not settled. These may come
before this host has its own new seat, so reports of a later tree wait for the seat. Memory is bounded: the note of a
step is dropped when all hosts are done or `Ordered.settled` passes it, and at most EARLY messages of a child wait.

Peers are hosts; the controller is -1. `now` decides only when beats and delayed reports go up.
"""

from __future__ import annotations

from itertools import repeat

from msgspec.structs import replace

from ..model import Illegal, Spans, spans
from ..protocol import (
    Arrived,
    Beat,
    Close,
    Compiled,
    CompileStep,
    Counted,
    Done,
    Effect,
    ForgetStep,
    GangStep,
    Lost,
    Ordered,
    RecvStep,
    Report,
    Reports,
    RestoreStep,
    Seat,
    Send,
    SendStep,
    SpillStep,
    Trouble,
)
from .reduce import Combined, Gather, Shape
from .stream import Inlet

EARLY = 1024  # messages of a later tree that may wait, for each child
ROUTES = 512  # sets of hosts whose routes and shapes are remembered
SWEEP = 256  # notes to collect before settled ones are searched and dropped

OF_ONE = (Trouble, Lost)
WITH_HOSTS = (GangStep, SendStep, RecvStep, SpillStep, RestoreStep)


class HandOver(Effect, frozen=True):
    """This message is for the executor of this host too."""

    message: Ordered


class Stale(Effect, frozen=True):
    """A message was refused, because it was under way when the tree changed. For the log; no peer is at fault."""

    peer: int
    reason: str


class Note:
    """What the relay knows of a step: the hosts that take part in it, and the reports about it so far."""

    __slots__ = ("gathers", "hosts", "seen_by", "transfer")

    def __init__(self, hosts: Spans, seen_by: Spans, transfer: int | None = None) -> None:
        self.hosts = hosts
        self.seen_by = (
            seen_by  # the hosts that this message told; after a new seat the others know the step already
        )
        self.transfer = transfer
        self.gathers: dict[type[Combined], Gather] = {}


class Relay:
    def __init__(self, host: int, period: int, patience: int) -> None:
        self.host, self.period, self.patience = host, period, patience
        self.inlet = Inlet()
        self._beat_at: int | None = None
        self._early: dict[int, list[Reports]] = {}
        self._out: list[Report] = []
        self._forget()

    def _forget(self) -> None:
        self._children: dict[int, Spans] = {}
        self._sources: dict[int, Spans] = {}  # the children and this host itself
        self._written: dict[int, int] = {}  # child -> the last number passed on to it
        self._beats: dict[int, Beat] = {}  # child -> its latest beat
        self._settled = -1
        self._steps: dict[int, Note] = {}  # by seq
        self._sends: dict[int, int] = {}  # transfer -> seq
        self._compiles: dict[tuple[int, int], Note] = {}  # by plan and code
        self._sweep_at = SWEEP
        # reports of this turn about steps that this relay does not know
        self._unknown: dict[tuple[type[Combined], int | tuple[int, int]], tuple[Gather, Combined]] = {}
        self._delayed: dict[Gather, Combined] = {}  # go up, as far as they have come, at `_delayed_until`
        self._delayed_until: int | None = None
        self._routes: dict[Spans, tuple[int, ...]] = {}
        self._shapes: dict[tuple[Spans, Spans], Shape] = {}
        self._out.clear()

    # --- seats ----------------------------------------------------------------------------------------------

    def seated(self, seat: Seat, now: int) -> list[Effect]:
        """Take this seat, and drop what came by the old path; it will be repeated. An older seat is Stale."""
        if seat.host != self.host:
            raise Illegal(f"a seat for host {seat.host} at host {self.host}")
        old = self.inlet.place
        if old is not None and (seat.epoch, seat.tree) < (old.epoch, old.tree):
            return [Stale(-1, f"a seat in epoch {seat.epoch}, tree {seat.tree}, came late")]
        self.inlet.seat(seat)
        self._forget()
        self._children = dict(seat.children)
        self._sources = {self.host: spans.one(self.host), **self._children}
        self._beat_at = now + self.period
        early, self._early = self._early, {}
        effects: list[Effect] = []
        for peer, waiting in early.items():
            for message in waiting:
                effects += self.reports(peer, message, now)
        return effects

    # --- down -----------------------------------------------------------------------------------------------

    def ordered(self, peer: int, message: Ordered) -> list[Effect]:
        seat = self.inlet.place
        if seat and peer != seat.parent and (message.epoch, message.tree) == (seat.epoch, seat.tree):
            return [Close(peer, f"orders for host {self.host} come from {seat.parent}, not from {peer}")]
        refused = self.inlet.refuses(message)
        if refused:
            return [Stale(peer, refused)]
        if not self._children:
            return [HandOver(message)] if spans.contains(message.hosts, self.host) else []
        self._note(message)
        effects: list[Effect] = []
        route = self._routes.get(message.hosts)
        if route is None:
            route = self._route(message.hosts)
        if route:
            for child in route:
                self._written[child] = message.number
            effects.append(Send(route, message))
        if spans.contains(message.hosts, self.host):
            effects.append(HandOver(message))
        return effects

    def _route(self, hosts: Spans) -> tuple[int, ...]:
        """Return the children that have one of these hosts below them."""
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        route = tuple(child for child, below in self._children.items() if spans.overlap(below, hosts))
        self._routes[hosts] = route
        return route

    def _note(self, message: Ordered) -> None:
        for step in message.steps:
            if isinstance(step, WITH_HOSTS):
                if isinstance(step, SendStep):
                    self._sends[step.transfer] = step.seq
                    self._steps[step.seq] = Note(step.hosts, message.hosts, step.transfer)
                else:
                    self._steps[step.seq] = Note(step.hosts, message.hosts)
            elif isinstance(step, CompileStep):
                for code, hosts in zip(step.codes, step.hosts or repeat(message.hosts), strict=False):
                    self._compiles[step.plan, code] = Note(hosts, message.hosts)
            elif isinstance(step, ForgetStep) and step.plans:
                for key in [key for key in self._compiles if key[0] in step.plans]:
                    del self._compiles[key]
        self._settled = max(self._settled, message.settled)
        if len(self._steps) > self._sweep_at:
            for seq in [seq for seq in self._steps if seq < self._settled]:
                self._drop(seq)
            self._sweep_at = 2 * len(self._steps) + SWEEP

    def _drop(self, seq: int) -> None:
        note = self._steps.pop(seq)
        if note.transfer is not None:
            self._sends.pop(note.transfer, None)

    # --- up -------------------------------------------------------------------------------------------------

    def report(self, report: Report, now: int) -> None:
        """Take a report of this host's own executor."""
        self._take(self.host, report, now)

    def reports(self, peer: int, message: Reports, now: int) -> list[Effect]:
        """Take the reports of a child."""
        seat = self.inlet.place
        place = (message.epoch, message.tree)
        if seat is None or place > (seat.epoch, seat.tree):
            waiting = self._early.setdefault(peer, [])
            if len(waiting) >= EARLY:
                text = f"more than {EARLY} reports of tree {message.tree}, for which host {self.host} has no seat"
                return [Close(peer, text)]
            waiting.append(message)
            return []
        if place < (seat.epoch, seat.tree) or message.island != seat.island:
            return [Stale(peer, f"reports of epoch {message.epoch}, tree {message.tree}")]
        below = self._children.get(peer)
        if below is None:
            return [Close(peer, f"host {peer} is not a child of host {self.host}")]
        for report in message.reports:
            hosts = spans.one(report.host) if isinstance(report, OF_ONE) else report.hosts
            if hosts != below and (not hosts or spans.minus(hosts, below)):
                return [Close(peer, f"host {peer} reports for hosts {spans.text(hosts)}, not all below it")]
            self._take(peer, report, now)
        return []

    def beside(self, host: int) -> bool:
        """Whether that host is this host's parent in the tree, or one of its children."""
        seat = self.inlet.place
        return seat is not None and (host == seat.parent or host in self._children)

    def child_lost(self, host: int) -> None:
        """The lease of a child has run out: report that."""
        self._early.pop(host, None)
        if host in self._children:
            self._beats.pop(host, None)
            self._out.append(Lost(host, self.host))

    def _take(self, source: int, report: Report, now: int) -> None:
        if isinstance(report, Beat):
            self._beats[source] = report
        elif not self._children or isinstance(report, OF_ONE):
            self._out.append(report)
        else:
            self._combine(source, report, now)

    def _combine(self, source: int, report: Combined, now: int) -> None:
        kind = type(report)
        note = self._find(report)
        if note is None:
            self._add_unknown(report)
            return
        gather = note.gathers.get(kind)
        if gather is None:
            gather = note.gathers[kind] = Gather(self._shape(note.hosts, note.seen_by))
        others = gather.add(source, report)
        if not gather.left:
            self._out += gather.take(report)
            self._complete(report, note)
        elif kind is Arrived or kind is Compiled:
            self._delayed[gather] = report
            if self._delayed_until is None:
                self._delayed_until = now + self.patience
        if others:
            self._add_unknown(replace(report, hosts=others))

    def _find(self, report: Combined) -> Note | None:
        if isinstance(report, Compiled):
            return self._compiles.get((report.plan, report.code))
        if isinstance(report, Counted):
            return self._steps.get(self._sends.get(report.transfer, -1))
        return self._steps.get(report.seq)

    def _complete(self, report: Combined, note: Note) -> None:
        """All hosts have reported: forget what was expected of them. The watchdog may ask again."""
        if isinstance(report, Done):
            arrived = note.gathers.get(Arrived)
            if arrived is not None:
                self._out += arrived.take(Arrived(report.seq, spans.EMPTY))
            self._drop(report.seq)
        elif isinstance(report, Compiled):
            del self._compiles[report.plan, report.code]
        else:
            del note.gathers[type(report)]

    def _add_unknown(self, report: Combined) -> None:
        """Combine a report about an unknown step with the others of this turn. More may come in later turns."""
        if isinstance(report, Compiled):
            key: int | tuple[int, int] = (report.plan, report.code)
        else:
            key = report.transfer if isinstance(report, Counted) else report.seq
        gather, _ = self._unknown.setdefault((type(report), key), (Gather(), report))
        gather.put(report, report.hosts)

    def _shape(self, hosts: Spans, seen_by: Spans) -> Shape:
        shape = self._shapes.get((hosts, seen_by))
        if shape is None:
            if len(self._shapes) >= ROUTES:
                self._shapes.clear()
            shape = self._shapes[hosts, seen_by] = Shape(spans.meet(hosts, seen_by), self._sources)
        return shape

    # --- time, and the end of a turn ------------------------------------------------------------------------

    def next_wakeup(self) -> int | None:
        times = [at for at in (self._beat_at, self._delayed_until) if at is not None]
        return min(times, default=None)

    def wakeup(self, now: int) -> None:
        if self._delayed_until is not None and now >= self._delayed_until:
            delayed, self._delayed, self._delayed_until = self._delayed, {}, None
            for gather, like in delayed.items():
                self._out += gather.take(like)
        if self._beat_at is not None and now >= self._beat_at:
            self._beat_at = now + self.period
            self._out.append(self._beat())

    def _beat(self) -> Beat:
        """Return the beat of this host and all below it that have sent one.

        A child that has seen everything passed on to it counts as having seen all that this host has seen: the other
        messages were for no host below it.
        """
        number = self.inlet.last
        hosts = [spans.one(self.host)]
        for child in self._children:
            beat = self._beats.get(child)
            if beat is not None:
                hosts.append(beat.hosts)
                if beat.number < self._written.get(child, -1):
                    number = min(number, beat.number)
        return Beat(spans.union(*hosts), number)

    def flush(self) -> list[Effect]:
        """End a turn: send all reports that are to go up, as one message."""
        if self._unknown:
            for gather, like in self._unknown.values():
                self._out += gather.take(like)
            self._unknown = {}
        seat = self.inlet.place
        if not self._out or seat is None:
            return []
        reports, self._out = tuple(self._out), []
        return [Send((seat.parent,), Reports(seat.island, seat.epoch, seat.tree, reports))]

"""One a host: passes orders down the tree as they are, and reports up it as few as they can be.

Down: an `Ordered` goes, the same object, to the children below which somebody must see it, and to the
executor of this host. What the inlet refuses goes nowhere. Up: a report on a step waits until all hosts
below that take part have made it, then goes up as one with merged spans. Who takes part was seen on the way
down; a report that nothing on the way down announced (one made again after a new seat) goes up with the
turn in which it came. Reports of one turn leave as one message (`flush`).

Not held back until all have spoken, since some may never: `Trouble` and `Lost` go up at once, `Beat` on its
period, and what there is of `Arrived` (the watchdog asks who has *not*) and `Compiled` (some compile for long)
after `patience`.

A new seat ends all that is being combined; executors then say again what is not settled. Their words may
come before this host's own seat: reports of a later tree wait for it. Memory is bounded: what is noted of a
step leaves when all are done or `Ordered.settled` passes it, and at most EARLY messages a child wait for a
seat.

Peers are hosts; the controller is -1. `now` decides only when beats, and what patience held, go up.
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

EARLY = 1024  # messages of a later tree that wait, for each child
ROUTES = 512  # sets of hosts whose ways and shapes are remembered
SWEEP = 256  # notes before it is worth looking which are settled

OF_ONE = (Trouble, Lost)
WITH_HOSTS = (GangStep, SendStep, RecvStep, SpillStep, RestoreStep)


class HandOver(Effect, frozen=True):
    """This message is for the executor of this host too."""

    message: Ordered


class Stale(Effect, frozen=True):
    """Refused, and nobody's fault: it was under way when the tree changed. For the log."""

    peer: int
    reason: str


class Note:
    """What was seen of a step on the way down: who takes part; and what is being combined about it."""

    __slots__ = ("gathers", "hosts", "seen_by", "transfer")

    def __init__(self, hosts: Spans, seen_by: Spans, transfer: int | None = None) -> None:
        self.hosts = hosts
        self.seen_by = seen_by  # after a re-seat, only some of them are told; the others have spoken, or will
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
        self._written: dict[int, int] = {}  # by child: the last number passed on to it
        self._beats: dict[int, Beat] = {}  # by child: the latest
        self._settled = -1
        self._steps: dict[int, Note] = {}  # by seq
        self._sends: dict[int, int] = {}  # transfer -> seq
        self._compiles: dict[tuple[int, int], Note] = {}  # by plan and code
        self._sweep_at = SWEEP
        self._loose: dict[tuple[type[Combined], int | tuple[int, int]], tuple[Gather, Combined]] = {}
        self._hasty: dict[Gather, Combined] = {}  # something in them may go up before all have spoken ...
        self._hasty_at: int | None = None  # ... at this time
        self._routes: dict[Spans, tuple[int, ...]] = {}
        self._shapes: dict[tuple[Spans, Spans], Shape] = {}
        self._out.clear()

    # --- seats ----------------------------------------------------------------------------------------------

    def seated(self, seat: Seat, now: int) -> list[Effect]:
        """Take this seat; what was on the old path is lost, and will be said again. An older one is Stale."""
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
        ways = self._routes.get(message.hosts)
        if ways is None:
            ways = self._way(message.hosts)
        if ways:
            for child in ways:
                self._written[child] = message.number
            effects.append(Send(ways, message))
        if spans.contains(message.hosts, self.host):
            effects.append(HandOver(message))
        return effects

    def _way(self, hosts: Spans) -> tuple[int, ...]:
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        ways = tuple(child for child, below in self._children.items() if spans.overlap(below, hosts))
        self._routes[hosts] = ways
        return ways

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
        """From this host's own executor."""
        self._take(self.host, report, now)

    def reports(self, peer: int, message: Reports, now: int) -> list[Effect]:
        """From a child."""
        seat = self.inlet.place
        place = (message.epoch, message.tree)
        if seat is None or place > (seat.epoch, seat.tree):
            waiting = self._early.setdefault(peer, [])
            if len(waiting) >= EARLY:
                return [Close(peer, f"{EARLY} reports of tree {message.tree}, which is not this host's")]
            waiting.append(message)
            return []
        if place < (seat.epoch, seat.tree) or message.island != seat.island:
            return [Stale(peer, f"reports of epoch {message.epoch}, tree {message.tree}")]
        below = self._children.get(peer)
        if below is None:
            return [Close(peer, f"host {peer} is no child of host {self.host}")]
        for report in message.reports:
            hosts = spans.one(report.host) if isinstance(report, OF_ONE) else report.hosts
            if hosts != below and (not hosts or spans.minus(hosts, below)):
                return [Close(peer, f"host {peer} speaks for hosts {spans.text(hosts)}")]
            self._take(peer, report, now)
        return []

    def beside(self, host: int) -> bool:
        """Whether this host is above us in the tree, or right below."""
        seat = self.inlet.place
        return seat is not None and (host == seat.parent or host in self._children)

    def child_lost(self, host: int) -> None:
        """Its lease has run out."""
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
            self._loosely(report)
            return
        gather = note.gathers.get(kind)
        if gather is None:
            gather = note.gathers[kind] = Gather(self._shape(note.hosts, note.seen_by))
        others = gather.add(source, report)
        if not gather.left:
            self._out += gather.take(report)
            self._complete(report, note)
        elif kind is Arrived or kind is Compiled:
            self._hasty[gather] = report
            if self._hasty_at is None:
                self._hasty_at = now + self.patience
        if others:
            self._loosely(replace(report, hosts=others))

    def _find(self, report: Combined) -> Note | None:
        if isinstance(report, Compiled):
            return self._compiles.get((report.plan, report.code))
        if isinstance(report, Counted):
            return self._steps.get(self._sends.get(report.transfer, -1))
        return self._steps.get(report.seq)

    def _complete(self, report: Combined, note: Note) -> None:
        """All have said it: nothing more is expected of them, unless the watchdog asks again."""
        if isinstance(report, Done):
            arrived = note.gathers.get(Arrived)
            if arrived is not None:
                self._out += arrived.take(Arrived(report.seq, spans.EMPTY))
            self._drop(report.seq)
        elif isinstance(report, Compiled):
            del self._compiles[report.plan, report.code]
        else:
            del note.gathers[type(report)]

    def _loosely(self, report: Combined) -> None:
        """Nobody knows how many will say it: what this turn brings goes up together."""
        if isinstance(report, Compiled):
            key: int | tuple[int, int] = (report.plan, report.code)
        else:
            key = report.transfer if isinstance(report, Counted) else report.seq
        gather, _ = self._loose.setdefault((type(report), key), (Gather(), report))
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
        times = [at for at in (self._beat_at, self._hasty_at) if at is not None]
        return min(times, default=None)

    def wakeup(self, now: int) -> None:
        if self._hasty_at is not None and now >= self._hasty_at:
            hasty, self._hasty, self._hasty_at = self._hasty, {}, None
            for gather, like in hasty.items():
                self._out += gather.take(like)
        if self._beat_at is not None and now >= self._beat_at:
            self._beat_at = now + self.period
            self._out.append(self._beat())

    def _beat(self) -> Beat:
        """A child that has seen all that was passed on to it has seen all that this host has: the rest was
        not for anybody below it."""
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
        """At the end of a turn: all that is to go up, as one message."""
        if self._loose:
            for gather, like in self._loose.values():
                self._out += gather.take(like)
            self._loose = {}
        seat = self.inlet.place
        if not self._out or seat is None:
            return []
        said, self._out = tuple(self._out), []
        return [Send((seat.parent,), Reports(seat.island, seat.epoch, seat.tree, said))]

"""The relay of one host: it passes orders down the tree unchanged, and combines reports on their way up.

Down: `StreamReceiver` accepts an `Ordered` or says why it refuses it. An accepted message goes, as the same object, to
each child that has one of its hosts below it, and to the executor of this host. Refused messages are dropped.

Up: a report about a step waits until all hosts below that take part in the step have reported, then goes up as one
report with merged spans. The relay knows who takes part from the orders that it passed down. A report about a step
that it has not seen (one that is repeated after a new seat) goes up in the turn in which it came. All reports of a
turn go up as one message (`flush`).

Some reports do not wait for all hosts, because some hosts may never report. `HostFault` and `Lost` go up at once,
`Heartbeat` on its period. `Arrived` (the watchdog wants to know which hosts are missing) and `Compiled` (some hosts may
compile for long) go up after `patience`, as far as they have come.

A new seat drops all reports that are being combined; executors then repeat those that are not settled. These may come
before this host has its own new seat, so reports of a later tree wait for the seat. Memory is bounded: the note of a
step is dropped when all hosts are done or `Ordered.settled` passes it, and at most EARLY messages of a child wait.

Peers are hosts; the controller is -1. `now` decides only when beats and delayed reports go up.

Neighbours: `core.host.Host` calls it and sends its messages; `reduce` combines equal reports; `stream` is the other
end. Read `ordered` first, then `report` and `_combine`.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import replace

from .. import protocol as p
from ..model import Illegal, Spans, spans
from .reduce import Combined, Participants, Reduction

EARLY = 1024  # messages of a later tree that may wait, for each child
ROUTES = 512  # sets of hosts whose routes and participants are remembered
SWEEP = 256  # notes to collect before settled ones are searched and dropped

BY_SEQ = frozenset((p.Done, p.Enqueued, p.Arrived))
COMBINED = BY_SEQ | {p.Compiled, p.PieceCounts}


class StreamReceiver:
    """A host's end: accepts the messages that come by the current path in order, and says why it refuses others."""

    def __init__(self) -> None:
        self.seat: p.Seat | None = None
        self.seen = -1  # all messages for this host have come up to this number, as Seated and Join say
        self.last = -1  # no message up to this number is accepted any more
        self._held = False  # whether all messages are refused until the next seat

    def hold(self) -> None:
        """Refuse all messages until the next seat. The host has reported what it has, and that must stay true."""
        self._held = True

    def take_seat(self, seat: p.Seat) -> int:
        """Take this seat, and refuse messages of older paths from now on. Return the number for `Seated.last`.

        That number may be below `last`: the messages between the two will be sent again under new numbers. A host
        without an earlier seat gets none of these.
        """
        if self.seat is None:
            self.seen = seat.last
        self.seat = seat
        self.last = seat.last
        self._held = False
        return self.seen

    def refuses(self, message: p.Ordered) -> str:
        """Accept the message and return "", or return the reason for which it is refused."""
        seat = self.seat
        if seat is None:
            return f"message {message.number} came before any seat"
        if message.island != seat.island:
            return f"message {message.number} is for island {message.island}, this host is in {seat.island}"
        if message.epoch != seat.epoch:
            return f"message {message.number} is of epoch {message.epoch}, this host is in {seat.epoch}"
        if message.tree != seat.tree:
            return f"message {message.number} came by tree {message.tree}, the path now is tree {seat.tree}"
        if message.number <= self.last:
            return f"message {message.number} is not above {self.last}"
        if self._held:
            return f"message {message.number} came while this host waits for another seat"
        self.last = self.seen = message.number
        return ""


class PendingReports(msgspec.Struct, eq=False):
    """The hosts that take part in a step, and the reports about it so far."""

    hosts: Spans
    seen_by: Spans  # the hosts that this message told; after a new seat the others know the step already
    transfer: int | None = None
    reductions: dict[type[Combined], Reduction] = {}


class Relay:
    def __init__(self, host: int, period: int, patience: int) -> None:
        self.host, self.period, self.patience = host, period, patience
        self.inlet = StreamReceiver()
        self._beat_at: int | None = None
        self._early: dict[int, list[p.Reports]] = {}
        self.up: list[p.Report] = []  # what this turn reports
        self._notes: dict[type, Callable[[Any, Spans], None]] = {
            p.GangStep: self._note_step, p.SendStep: self._note_send, p.RecvStep: self._note_step,
            p.SpillStep: self._note_step, p.RestoreStep: self._note_step, p.CompileStep: self._note_compile,
            p.ForgetStep: self._note_forget,
        }  # fmt: skip
        self._forget()

    def _forget(self) -> None:
        self._children: dict[int, Spans] = {}
        self._sources: dict[int, Spans] = {}  # the children and this host itself
        self._written: dict[tuple[int, ...], int] = {}  # children -> the last number passed on to just these
        self._beats: dict[int, p.Heartbeat] = {}  # child -> its latest beat
        self._settled = -1
        self._steps: dict[int, PendingReports] = {}  # by seq
        self._sends: dict[int, int] = {}  # transfer -> seq
        self._compiles: dict[tuple[int, int], PendingReports] = {}  # by plan and code
        self._sweep_at = SWEEP
        # reports of this turn about steps that this relay does not know
        self.unknown: dict[tuple[type[Combined], int | tuple[int, int]], tuple[Reduction, Combined]] = {}
        self._delayed: dict[Reduction, Combined] = {}  # go up, as far as they have come, at `_delayed_until`
        self._delayed_until: int | None = None
        # hosts -> children, whether this host too
        self._routes: dict[Spans, tuple[tuple[int, ...], bool]] = {}
        self._participants: dict[tuple[Spans, Spans], Participants] = {}
        self.up.clear()

    # --- seats ----------------------------------------------------------------------------------------------

    def seated(self, seat: p.Seat, now: int, out: list[p.Command]) -> None:
        """Take this seat, and drop what came by the old path; it will be repeated. An older seat is refused."""
        if seat.host != self.host:
            raise Illegal(f"a seat for host {seat.host} at host {self.host}")
        old = self.inlet.seat
        if old is not None and (seat.epoch, seat.tree) < (old.epoch, old.tree):
            out.append(self._refused(-1, f"a seat in epoch {seat.epoch}, tree {seat.tree}, came late"))
            return
        self.inlet.take_seat(seat)
        self._forget()
        self._children = dict(seat.children)
        self._sources = {self.host: spans.one(self.host), **self._children}
        self._beat_at = now + self.period
        early, self._early = self._early, {}
        for peer, waiting in early.items():
            for message in waiting:
                self.reports(peer, message, now, out)

    def _refused(self, peer: int, reason: str) -> p.LogLine:
        """Return a line for the log. No peer is at fault: the message was under way when the tree changed."""
        return p.LogLine(f"host {self.host}: refused from peer {peer}: {reason}")

    # --- down -----------------------------------------------------------------------------------------------

    def ordered(self, peer: int, message: p.Ordered, out: list[p.Command]) -> bool:
        """Pass a message on to the children that need it. Return whether it is for this host's executor too."""
        seat = self.inlet.seat
        if seat is not None and peer != seat.parent and (message.epoch, message.tree) == (seat.epoch, seat.tree):
            reason = f"orders for host {self.host} come from {seat.parent}, not from {peer}"
            out.append(p.Close(peer, reason))
            return False
        refused = self.inlet.refuses(message)
        if refused:
            out.append(self._refused(peer, refused))
            return False
        children, ours = self._routes.get(message.hosts) or self._route(message.hosts)
        if self._children:
            self._note(message)
            if children:
                self._written[children] = message.number
                out.append(p.Send(children, message))
        return ours

    def _route(self, hosts: Spans) -> tuple[tuple[int, ...], bool]:
        """Return the children that have one of these hosts below them, and whether this host is one of them."""
        if len(self._routes) >= ROUTES:
            self._routes.clear()
            self._written = {(child,): number for child, number in self._last_written().items()}
        children = tuple(child for child, below in self._children.items() if spans.overlap(below, hosts))
        route = self._routes[hosts] = children, spans.contains(hosts, self.host)
        return route

    def _note(self, message: p.Ordered) -> None:
        steps, notes = self._steps, self._notes
        for step in message.steps:
            note = notes.get(type(step))
            if note is not None:
                note(step, message.hosts)
        self._settled = max(self._settled, message.settled)
        if len(steps) > self._sweep_at:
            for seq in [seq for seq in steps if seq < self._settled]:
                self._drop(seq)
            self._sweep_at = 2 * len(steps) + SWEEP

    def _note_step(self, step: p.GangStep | p.RecvStep | p.SpillStep | p.RestoreStep, seen_by: Spans) -> None:
        self._steps[step.seq] = PendingReports(step.hosts, seen_by)

    def _note_send(self, step: p.SendStep, seen_by: Spans) -> None:
        self._steps[step.seq] = PendingReports(step.hosts, seen_by, step.transfer)
        self._sends[step.transfer] = step.seq

    def _note_compile(self, step: p.CompileStep, seen_by: Spans) -> None:
        for code, hosts in zip(step.codes, step.hosts or repeat(seen_by), strict=False):
            self._compiles[step.plan, code] = PendingReports(hosts, seen_by)

    def _note_forget(self, step: p.ForgetStep, seen_by: Spans) -> None:
        if step.plans:
            for key in [key for key in self._compiles if key[0] in step.plans]:
                del self._compiles[key]

    def _drop(self, seq: int) -> None:
        note = self._steps.pop(seq)
        if note.transfer is not None:
            self._sends.pop(note.transfer, None)

    # --- up -------------------------------------------------------------------------------------------------

    def report(self, report: p.Report, now: int) -> None:
        """Take a report of this host's own executor."""
        if self._children and type(report) in COMBINED:
            self._combine(self.host, report, now)  # type: ignore[arg-type]
        else:
            self.up.append(report)

    def reports(self, peer: int, message: p.Reports, now: int, out: list[p.Command]) -> None:
        """Take the reports of a child."""
        seat = self.inlet.seat
        if seat is None or message.tree != seat.tree or message.epoch != seat.epoch:
            self._other_tree(peer, message, out)
            return
        if message.island != seat.island:
            out.append(self._refused(peer, f"reports of epoch {message.epoch}, tree {message.tree}"))
            return
        below = self._children.get(peer)
        if below is None:
            out.append(p.Close(peer, f"host {peer} is not a child of host {self.host}"))
            return
        for report in message.reports:
            combined = type(report) in COMBINED
            one = not combined and type(report) is not p.Heartbeat
            hosts = spans.one(report.host) if one else report.hosts  # type: ignore[union-attr]
            if hosts != below and (not hosts or spans.minus(hosts, below)):
                out.append(p.Close(peer, f"host {peer} reports for hosts {spans.text(hosts)}, not all below it"))
                return
            if combined:
                self._combine(peer, report, now)  # type: ignore[arg-type]
            elif one:
                self.up.append(report)
            else:
                self._beats[peer] = report  # type: ignore[assignment]

    def _other_tree(self, peer: int, message: p.Reports, out: list[p.Command]) -> None:
        """Keep reports of a later tree for this host's own seat; refuse reports of an earlier tree."""
        seat = self.inlet.seat
        if seat is not None and (message.epoch, message.tree) < (seat.epoch, seat.tree):
            out.append(self._refused(peer, f"reports of epoch {message.epoch}, tree {message.tree}"))
            return
        waiting = self._early.setdefault(peer, [])
        if len(waiting) >= EARLY:
            reason = f"more than {EARLY} reports of tree {message.tree}, for which host {self.host} has no seat"
            out.append(p.Close(peer, reason))
        else:
            waiting.append(message)

    @property
    def idle(self) -> bool:
        """Whether no report waits here for others."""
        if self.up or self.unknown or self._delayed or self._early:
            return False
        notes = (*self._steps.values(), *self._compiles.values())
        return not any(note.reductions for note in notes)

    def expect(self, steps: Sequence[p.GangStep], seen_by: Spans) -> None:
        """Take in that these hosts know these steps, and that none has reported on them. Only a simulator needs this:
        its hosts may begin in the middle of what is under way."""
        for step in steps if self._children else ():
            self._note_step(step, seen_by)

    def beside(self, host: int) -> bool:
        """Whether that host is this host's parent in the tree, or one of its children."""
        seat = self.inlet.seat
        return seat is not None and (host == seat.parent or host in self._children)

    def child_lost(self, host: int) -> None:
        """The lease of a child has run out: report that."""
        self._early.pop(host, None)
        if host in self._children:
            self._beats.pop(host, None)
            self.up.append(p.Lost(host, self.host))

    def _combine(self, source: int, report: Combined, now: int) -> None:
        kind = type(report)
        if kind in BY_SEQ:
            note = self._steps.get(report.seq)  # type: ignore[union-attr]
        else:
            note = self._find(report)
        if note is None:
            self._add_unknown(report)
            return
        reduction = note.reductions.get(kind)
        if reduction is None:
            reduction = note.reductions[kind] = Reduction(self._taking_part(note.hosts, note.seen_by))
        others = reduction.add(source, report)
        if not reduction.left:
            self.up += reduction.take(report)
            self._complete(report, note)
        elif kind is p.Arrived or kind is p.Compiled:
            self._delayed[reduction] = report
            if self._delayed_until is None:
                self._delayed_until = now + self.patience
        if others:
            self._add_unknown(replace(report, hosts=others))

    def _find(self, report: Combined) -> PendingReports | None:
        """Return the note of the step that this report is about."""
        if isinstance(report, p.Compiled):
            return self._compiles.get((report.plan, report.code))
        if isinstance(report, p.PieceCounts):
            return self._steps.get(self._sends.get(report.transfer, -1))
        return self._steps.get(report.seq)

    def _complete(self, report: Combined, note: PendingReports) -> None:
        """All hosts have reported: forget what was expected of them. The watchdog may ask again."""
        if isinstance(report, p.Done):
            arrived = note.reductions.get(p.Arrived)
            if arrived is not None:
                self.up += arrived.take(p.Arrived(report.seq, spans.EMPTY))
            self._drop(report.seq)
        elif isinstance(report, p.Compiled):
            del self._compiles[report.plan, report.code]
        else:
            del note.reductions[type(report)]

    def _add_unknown(self, report: Combined) -> None:
        """Combine a report about an unknown step with the others of this turn. More may come in later turns."""
        if isinstance(report, p.Compiled):
            key: int | tuple[int, int] = (report.plan, report.code)
        else:
            key = report.transfer if isinstance(report, p.PieceCounts) else report.seq
        reduction, _ = self.unknown.setdefault((type(report), key), (Reduction(), report))
        reduction.put(report, report.hosts)

    def _taking_part(self, hosts: Spans, seen_by: Spans) -> Participants:
        found = self._participants.get((hosts, seen_by))
        if found is None:
            if len(self._participants) >= ROUTES:
                self._participants.clear()
            found = Participants(spans.meet(hosts, seen_by), self._sources)
            self._participants[hosts, seen_by] = found
        return found

    # --- time, and the end of a turn ------------------------------------------------------------------------

    def next_wakeup(self) -> int | None:
        beat, delayed = self._beat_at, self._delayed_until
        if delayed is None or (beat is not None and beat < delayed):
            return beat
        return delayed

    def wakeup(self, now: int) -> None:
        if self._delayed_until is not None and now >= self._delayed_until:
            delayed, self._delayed, self._delayed_until = self._delayed, {}, None
            for reduction, like in delayed.items():
                self.up += reduction.take(like)
        if self._beat_at is not None and now >= self._beat_at:
            self._beat_at = now + self.period
            self.up.append(self._beat())

    def _beat(self) -> p.Heartbeat:
        """Return the beat of this host and all below it that have sent one.

        A child that has seen everything passed on to it counts as having seen all that this host has seen: the other
        messages were for no host below it.
        """
        number = self.inlet.last
        hosts, written = [spans.one(self.host)], self._last_written()
        for child in self._children:
            beat = self._beats.get(child)
            if beat is not None:
                hosts.append(beat.hosts)
                if beat.number < written.get(child, -1):
                    number = min(number, beat.number)
        return p.Heartbeat(spans.union(*hosts), number)

    def _last_written(self) -> dict[int, int]:
        """Return the last number that was passed on to each child. Numbers count up, so the largest is the last."""
        found: dict[int, int] = {}
        for children, number in self._written.items():
            for child in children:
                found[child] = max(number, found.get(child, number))
        return found

    def flush(self, out: list[p.Command]) -> None:
        """End a turn: send all reports that are to go up, as one message."""
        if self.unknown:
            for reduction, like in self.unknown.values():
                self.up += reduction.take(like)
            self.unknown = {}
        seat = self.inlet.seat
        if self.up and seat is not None:
            reports, self.up = tuple(self.up), []
            out.append(p.Send((seat.parent,), p.Reports(seat.island, seat.epoch, seat.tree, reports)))

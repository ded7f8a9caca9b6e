"""One on each host: takes the orders meant for it, passes them down the tree, and combines the reports that go up.

Down: `Inlet` takes an `Ordered` or says why it refuses it. What it takes goes, as the same object, to the children
below which some host must see it, and to this host's executor. What it refuses goes nowhere.

Up: a report on a step waits until all hosts below that take part have made it, then goes up as one with merged
spans. The relay saw which hosts take part when the step went down. A report that nothing on the way down announced
(one made again after a new seat) goes up with the turn in which it came. Reports of one turn leave as one message
(`flush`).

Some reports do not wait for all hosts, since some hosts may never speak. `Trouble` and `Lost` go up at once, `Beat`
on its period, and what there is of `Arrived` (the watchdog asks which hosts have *not*) and `Compiled` (some compile
for long) after `patience`.

A new seat ends all that is being combined; executors then say again what is not settled. Reports from children may
come before this host's own seat: reports of a later tree wait for it. Memory is bounded: what is noted of a step
leaves when all are done or `Ordered.settled` passes it, and at most EARLY messages from each child wait for a seat.

Peers are hosts; the controller is -1. `now` decides only when beats, and reports that `patience` held, go up.

Neighbours: `core.host.Host` calls it and sends what it says; `reduce` combines equal reports; `stream` is the other
end. Read `ordered` first, then `report` and `_combine`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import replace

from ..model import Illegal, Spans, spans
from ..protocol import (
    Arrived,
    Beat,
    Close,
    Command,
    Compiled,
    CompileStep,
    Counted,
    Done,
    Enqueued,
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
    Tell,
)
from .reduce import Combined, Participants, Reduction

EARLY = 1024  # messages of a later tree that wait, for each child
ROUTES = 512  # sets of hosts whose ways and participants are remembered
SWEEP = 256  # steps noted before it is worth looking which are settled

BY_SEQ = frozenset((Done, Enqueued, Arrived))
COMBINED = BY_SEQ | {Compiled, Counted}


class Inlet:
    """A host's end of the stream: says of each message whether it is the next on the one path, or why it is
    refused."""

    def __init__(self) -> None:
        self.seat: Seat | None = None
        self.seen = -1  # all that was for this host has come up to this number: what Seated and Join say
        self.last = -1  # the fence: nothing up to this number is taken any more
        self._held = False  # until the next seat

    def hold(self) -> None:
        """The host has said what it has. What came by the old path now would not be in that."""
        self._held = True

    def take_seat(self, seat: Seat) -> int:
        """What older paths still hold is refused from now on. Returns what to say in Seated.

        `seen` may stay below the fence: what is between the two is owed to this host under new numbers. A host
        that has just come is owed nothing from before its time."""
        if self.seat is None:
            self.seen = seat.last
        self.seat = seat
        self.last = seat.last
        self._held = False
        return self.seen

    def refuses(self, message: Ordered) -> str:
        """Why, in words; "" when it has been taken."""
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


class StepNote(msgspec.Struct, eq=False):
    """Which hosts take part in a step, as seen on the way down; and what is being combined about it."""

    hosts: Spans
    seen_by: Spans  # after a re-seat only some of the hosts are told; the others have spoken, or will
    transfer: int | None = None
    reductions: dict[type[Combined], Reduction] = {}


class Relay:
    def __init__(self, host: int, period: int, patience: int) -> None:
        self.host, self.period, self.patience = host, period, patience
        self.inlet = Inlet()
        self._beat_at: int | None = None
        self._early: dict[int, list[Reports]] = {}
        self._up: list[Report] = []
        self._notes: dict[type, Callable[[Any, Spans], None]] = {
            GangStep: self._note_step, SendStep: self._note_send, RecvStep: self._note_step,
            SpillStep: self._note_step, RestoreStep: self._note_step, CompileStep: self._note_compile,
            ForgetStep: self._note_forget,
        }  # fmt: skip
        self._forget()

    def _forget(self) -> None:
        self._children: dict[int, Spans] = {}
        self._sources: dict[int, Spans] = {}  # the children and this host itself
        self._written: dict[int, int] = {}  # by child: the last number passed on to it
        self._beats: dict[int, Beat] = {}  # by child: the latest
        self._settled = -1
        self._steps: dict[int, StepNote] = {}  # by seq
        self._sends: dict[int, int] = {}  # transfer -> seq
        self._compiles: dict[tuple[int, int], StepNote] = {}  # by plan and code
        self._sweep_at = SWEEP
        self._loose: dict[tuple[type[Combined], int | tuple[int, int]], tuple[Reduction, Combined]] = {}
        self._hasty: dict[Reduction, Combined] = {}  # something in them may go up before all have spoken ...
        self._hasty_at: int | None = None  # ... at this time
        self._routes: dict[Spans, tuple[tuple[int, ...], bool]] = {}  # which children; this host too
        self._participants: dict[tuple[Spans, Spans], Participants] = {}
        self._up.clear()

    # --- seats ----------------------------------------------------------------------------------------------

    def seated(self, seat: Seat, now: int, out: list[Command]) -> None:
        """Take this seat. What was on the old path is lost, and will be said again. An older seat is refused."""
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

    def _refused(self, peer: int, reason: str) -> Tell:
        """Nobody's fault: it was under way when the tree changed. For the log."""
        return Tell(f"host {self.host}: refused from peer {peer}: {reason}")

    # --- down -----------------------------------------------------------------------------------------------

    def ordered(self, peer: int, message: Ordered, out: list[Command]) -> bool:
        """Pass it on to the children that need it. Returns whether it is for this host's executor too."""
        seat = self.inlet.seat
        if (
            seat is not None
            and peer != seat.parent
            and (message.epoch, message.tree) == (seat.epoch, seat.tree)
        ):
            reason = f"orders for host {self.host} come from {seat.parent}, not from {peer}"
            out.append(Close(peer, reason))
            return False
        refused = self.inlet.refuses(message)
        if refused:
            out.append(self._refused(peer, refused))
            return False
        children, ours = self._routes.get(message.hosts) or self._route(message.hosts)
        if self._children:
            self._note(message)
            if children:
                for child in children:
                    self._written[child] = message.number
                out.append(Send(children, message))
        return ours

    def _route(self, hosts: Spans) -> tuple[tuple[int, ...], bool]:
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        children = tuple(child for child, below in self._children.items() if spans.overlap(below, hosts))
        route = self._routes[hosts] = children, spans.contains(hosts, self.host)
        return route

    def _note(self, message: Ordered) -> None:
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

    def _note_step(self, step: GangStep | RecvStep | SpillStep | RestoreStep, seen_by: Spans) -> None:
        self._steps[step.seq] = StepNote(step.hosts, seen_by)

    def _note_send(self, step: SendStep, seen_by: Spans) -> None:
        self._steps[step.seq] = StepNote(step.hosts, seen_by, step.transfer)
        self._sends[step.transfer] = step.seq

    def _note_compile(self, step: CompileStep, seen_by: Spans) -> None:
        for code, hosts in zip(step.codes, step.hosts or repeat(seen_by), strict=False):
            self._compiles[step.plan, code] = StepNote(hosts, seen_by)

    def _note_forget(self, step: ForgetStep, seen_by: Spans) -> None:
        if step.plans:
            for key in [key for key in self._compiles if key[0] in step.plans]:
                del self._compiles[key]

    def _drop(self, seq: int) -> None:
        note = self._steps.pop(seq)
        if note.transfer is not None:
            self._sends.pop(note.transfer, None)

    # --- up -------------------------------------------------------------------------------------------------

    def report(self, report: Report, now: int) -> None:
        """From this host's own executor."""
        if self._children and type(report) in COMBINED:
            self._combine(self.host, report, now)  # type: ignore[arg-type]
        else:
            self._up.append(report)

    def reports(self, peer: int, message: Reports, now: int, out: list[Command]) -> None:
        """From a child."""
        seat = self.inlet.seat
        if seat is None or message.tree != seat.tree or message.epoch != seat.epoch:
            self._other_tree(peer, message, out)
            return
        if message.island != seat.island:
            out.append(self._refused(peer, f"reports of epoch {message.epoch}, tree {message.tree}"))
            return
        below = self._children.get(peer)
        if below is None:
            out.append(Close(peer, f"host {peer} is no child of host {self.host}"))
            return
        for report in message.reports:
            combined = type(report) in COMBINED
            one = not combined and type(report) is not Beat
            hosts = spans.one(report.host) if one else report.hosts  # type: ignore[union-attr]
            if hosts != below and (not hosts or spans.minus(hosts, below)):
                out.append(Close(peer, f"host {peer} speaks for hosts {spans.text(hosts)}"))
                return
            if combined:
                self._combine(peer, report, now)  # type: ignore[arg-type]
            elif one:
                self._up.append(report)
            else:
                self._beats[peer] = report  # type: ignore[assignment]

    def _other_tree(self, peer: int, message: Reports, out: list[Command]) -> None:
        """Reports of a later tree wait for this host's own seat; those of an earlier tree are refused."""
        seat = self.inlet.seat
        if seat is not None and (message.epoch, message.tree) < (seat.epoch, seat.tree):
            out.append(self._refused(peer, f"reports of epoch {message.epoch}, tree {message.tree}"))
            return
        waiting = self._early.setdefault(peer, [])
        if len(waiting) >= EARLY:
            reason = f"{EARLY} reports of tree {message.tree}, which is not this host's"
            out.append(Close(peer, reason))
        else:
            waiting.append(message)

    def beside(self, host: int) -> bool:
        """Whether this host is above us in the tree, or right below."""
        seat = self.inlet.seat
        return seat is not None and (host == seat.parent or host in self._children)

    def child_lost(self, host: int) -> None:
        """Its lease has run out."""
        self._early.pop(host, None)
        if host in self._children:
            self._beats.pop(host, None)
            self._up.append(Lost(host, self.host))

    def _combine(self, source: int, report: Combined, now: int) -> None:
        kind = type(report)
        if kind in BY_SEQ:
            note = self._steps.get(report.seq)  # type: ignore[union-attr]
        else:
            note = self._find(report)
        if note is None:
            self._loosely(report)
            return
        reduction = note.reductions.get(kind)
        if reduction is None:
            reduction = note.reductions[kind] = Reduction(self._taking_part(note.hosts, note.seen_by))
        others = reduction.add(source, report)
        if not reduction.left:
            self._up += reduction.take(report)
            self._complete(report, note)
        elif kind is Arrived or kind is Compiled:
            self._hasty[reduction] = report
            if self._hasty_at is None:
                self._hasty_at = now + self.patience
        if others:
            self._loosely(replace(report, hosts=others))

    def _find(self, report: Combined) -> StepNote | None:
        """By what such a report names."""
        if isinstance(report, Compiled):
            return self._compiles.get((report.plan, report.code))
        if isinstance(report, Counted):
            return self._steps.get(self._sends.get(report.transfer, -1))
        return self._steps.get(report.seq)

    def _complete(self, report: Combined, note: StepNote) -> None:
        """All have said it: nothing more is expected of them, unless the watchdog asks again."""
        if isinstance(report, Done):
            arrived = note.reductions.get(Arrived)
            if arrived is not None:
                self._up += arrived.take(Arrived(report.seq, spans.EMPTY))
            self._drop(report.seq)
        elif isinstance(report, Compiled):
            del self._compiles[report.plan, report.code]
        else:
            del note.reductions[type(report)]

    def _loosely(self, report: Combined) -> None:
        """Nobody knows how many will say it: what this turn brings goes up together."""
        if isinstance(report, Compiled):
            key: int | tuple[int, int] = (report.plan, report.code)
        else:
            key = report.transfer if isinstance(report, Counted) else report.seq
        reduction, _ = self._loose.setdefault((type(report), key), (Reduction(), report))
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
        beat, hasty = self._beat_at, self._hasty_at
        if hasty is None or (beat is not None and beat < hasty):
            return beat
        return hasty

    def wakeup(self, now: int) -> None:
        if self._hasty_at is not None and now >= self._hasty_at:
            hasty, self._hasty, self._hasty_at = self._hasty, {}, None
            for reduction, like in hasty.items():
                self._up += reduction.take(like)
        if self._beat_at is not None and now >= self._beat_at:
            self._beat_at = now + self.period
            self._up.append(self._beat())

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

    def flush(self, out: list[Command]) -> None:
        """At the end of a turn: all that is to go up, as one message."""
        if self._loose:
            for reduction, like in self._loose.values():
                self._up += reduction.take(like)
            self._loose = {}
        seat = self.inlet.seat
        if self._up and seat is not None:
            said, self._up = tuple(self._up), []
            out.append(Send((seat.parent,), Reports(seat.island, seat.epoch, seat.tree, said)))

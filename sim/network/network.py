"""Control messages between processes: first in first out on each connection, after a latency, a serialisation
and a jitter; held while the connection is cut, and lost for good with either end.

Core's links resend what a broken connection loses; what is modelled is their contract. Control messages do not
queue behind contents (packets interleave, and they are small): what holds them up is the processes at the ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.protocol import Grant, Landed
from core.protocol import messages as m

from ..engine import Clock
from ..engine import jitter as noise
from .message_sizes import MESSAGE, REPORT, is_quiet

CONTROLLER = -1  # as core's peers are numbered: hosts 0, 1, ...; clients -2, -3, ...
Name = int

_SHIFT = 1 << 32
_WORDS = 1 << 59  # of the data plane
_REPORTS = 1 << 60  # numbers of reports, apart from those of other messages
_KINDS = (m.Counted, m.Enqueued, m.Done)  # in the order in which a host says them of one thing
REPORT_BYTES = MESSAGE + REPORT
WORDS = frozenset((Grant, Landed))  # they have a stream of their own


def link_of(sender: Name, receiver: Name) -> int:
    """One number for one direction of a connection."""
    return (sender + _SHIFT // 2) * _SHIFT + receiver + _SHIFT // 2


def report_number(report: m.Report) -> int:
    """By what it is about: the same wherever it comes from, and whatever else is sent."""
    about = getattr(report, "seq", getattr(report, "transfer", 0))
    kind = _KINDS.index(type(report)) if type(report) in _KINDS else len(_KINDS)
    return _REPORTS + 4 * int(about) + kind


def about(number: int) -> int:
    """What a report is about: all that a host says of one thing takes the same time, and so stays in its order."""
    return number & ~3


def _drawn_for(message: Any, number: int) -> int:
    """By which number its jitter is drawn: what it is about, where it is about one thing."""
    if isinstance(message, m.Ordered):
        return message.number
    transfer = getattr(message, "transfer", -1)
    return number if transfer < 0 else _WORDS + 2 * transfer + isinstance(message, Landed)


class Link:
    """One direction of a connection."""

    __slots__ = ("count", "held", "last", "source")

    def __init__(self, source: int) -> None:
        self.source = source  # of its jitter
        self.count = 0
        self.last = [0, 0]  # when what was sent last arrives: orders and calls; words about contents
        self.held: list[Any] | None = None  # cut, nobody knows for how long


class Network:
    """`arrive(receiver, sender, number, message)`: at the receiver's process."""

    def __init__(
        self, clock: Clock, latency: int, byte_ps: int, jitter: int, seed: int,
        arrive: Callable[[Name, Name, int, Any], None],
    ) -> None:  # fmt: skip
        self._clock = clock
        self.latency, self.byte_ps, self.jitter, self._seed = latency, byte_ps, jitter, seed
        self._arrive = arrive
        self._links: dict[tuple[Name, Name], Link] = {}
        self._lives: dict[Name, int] = {}  # a process that begins anew does not get what was for the last
        self._cuts: dict[tuple[Name, Name], int] = {}  # how often a connection was cut
        self.messages = 0

    def link(self, sender: Name, receiver: Name) -> Link:
        found = self._links.get((sender, receiver))
        if found is None:
            source = noise.key(self._seed, link_of(sender, receiver))
            found = self._links[sender, receiver] = Link(source)
        return found

    def count(self, sender: Name, receiver: Name) -> int:
        """The number of another message."""
        link = self.link(sender, receiver)
        link.count += 1
        return link.count - 1

    def send(self, sender: Name, receiver: Name, message: Any, nbytes: int, departure: int) -> None:
        number = self.count(sender, receiver)
        link = self.link(sender, receiver)
        self.messages += 1
        words = type(message) in WORDS
        if link.held is not None:
            link.held.append((number, message))
            return
        which = _drawn_for(message, number)
        late = noise.below(self.jitter + 1, link.source, which) if self.jitter else 0
        arrival = departure + self.latency + nbytes * self.byte_ps // 1000 + late
        arrival = max(arrival, link.last[words])
        link.last[words] = arrival
        life = self._lives.get(sender, 0), self._lives.get(receiver, 0)
        self._clock.at(arrival, self._deliver, life, receiver, sender, number, message)

    def send_report(self, sender: Name, receiver: Name, message: m.Reports, departure: int) -> None:
        """One report. Those on different things may overtake each other, as relays let them anyway."""
        (report,) = message.reports
        arrival = self.report_arrival(sender, receiver, report, departure)
        life = self._lives.get(sender, 0), self._lives.get(receiver, 0)
        number = report_number(report)
        self._clock.at(arrival, self._deliver, life, receiver, sender, number, message)

    @property
    def report_latency(self) -> int:
        """But for its jitter."""
        return self.latency + REPORT_BYTES * self.byte_ps // 1000

    def report_arrival(self, sender: Name, receiver: Name, report: m.Report, departure: int) -> int:
        self.messages += 1
        if is_quiet(report):
            return departure + self.latency
        arrival = departure + self.report_latency
        if self.jitter:
            arrival += noise.below(
                self.jitter + 1, self.link(sender, receiver).source, about(report_number(report))
            )
        return arrival

    def _deliver(
        self, life: tuple[int, int], receiver: Name, sender: Name, number: int, message: Any
    ) -> None:
        if life != (self._lives.get(sender, 0), self._lives.get(receiver, 0)):
            return  # one of the ends is no longer who it was
        link = self.link(sender, receiver)
        if link.held is not None:
            link.held.append((number, message))
            return
        self._arrive(receiver, sender, number, message)

    # --- trouble ----------------------------------------------------------------------------------------

    def end(self, name: Name) -> None:
        """This process is gone, with all that is on its way to it and from it."""
        self._lives[name] = self._lives.get(name, 0) + 1
        for pair in [pair for pair in self._links if name in pair]:
            del self._links[pair]

    def partners(self, name: Name) -> list[Name]:
        """Who has spoken with it, or was spoken to."""
        return sorted({sum(pair) - name for pair in self._links if name in pair})

    def cut(self, one: Name, other: Name) -> None:
        self._cuts[one, other] = self.cuts(one, other) + 1
        for pair in ((one, other), (other, one)):
            link = self.link(*pair)
            if link.held is None:
                link.held = []

    def mend(self, one: Name, other: Name) -> None:
        """What was held arrives now, in its order."""
        for sender, receiver in ((one, other), (other, one)):
            link = self.link(sender, receiver)
            held, link.held = link.held or [], None
            arrival = max(self._clock.now + self.latency, *link.last)
            life = self._lives.get(sender, 0), self._lives.get(receiver, 0)
            for number, message in sorted(held, key=lambda pair: pair[0]):
                self._clock.at(arrival, self._deliver, life, receiver, sender, number, message)
            link.last = [arrival, arrival]

    def cuts(self, one: Name, other: Name) -> int:
        return self._cuts.get((one, other), 0)

    def is_cut(self, one: Name, other: Name) -> bool:
        return self.link(one, other).held is not None

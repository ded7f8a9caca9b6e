"""Control messages between processes: first in first out on each connection, after a latency, a serialisation
and a jitter. They are held while the connection is cut, and lost when either end dies.

Core's links resend what a broken connection loses; this models the contract of those links. Control messages do not
queue behind contents (packets interleave, and control messages are small): only the processes at the ends delay them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from core.model import Spans, spans
from core.protocol import Grant, Landed
from core.protocol import messages as m

from ..engine import SimClock
from ..engine import jitter as noise
from .message_sizes import MESSAGE, REPORT, is_quiet

CONTROLLER = -1  # numbered as core numbers peers: hosts 0, 1, ...; clients -2, -3, ...
Name = int

_SHIFT = 1 << 32
_WORDS = 1 << 59  # numbers of data-plane messages
_REPORTS = 1 << 60  # numbers of reports, apart from the numbers of other messages
_KINDS = {m.PieceCounts: 0, m.Enqueued: 1, m.Done: 2}  # in the order in which a host reports them about one thing
REPORT_BYTES = MESSAGE + REPORT
# Each has a stream of its own. Those about one transfer stay in order: they draw the same jitter, and the last one
# is said when all others have come.
WORDS = frozenset((Grant, Landed))


def link_of(sender: Name, receiver: Name) -> int:
    """One number for one direction of a connection."""
    return (sender + _SHIFT // 2) * _SHIFT + receiver + _SHIFT // 2


def report_number(report: m.Report) -> int:
    """A report's number follows from its subject: it is the same from every host, whatever else is sent."""
    about = report.seq if isinstance(report, m.Done) else getattr(report, "seq", getattr(report, "transfer", 0))
    return _REPORTS + 4 * int(about) + _KINDS.get(type(report), len(_KINDS))


def about(number: int) -> int:
    """The subject of a report. All reports of a host on one subject get the same jitter, and so stay in order."""
    return number & ~3


def _drawn_for(message: Any, number: int) -> int:
    """The number by which a message's jitter is drawn: that of its subject, where it is about one thing."""
    if isinstance(message, m.Ordered):
        return message.number
    transfer = getattr(message, "transfer", -1)
    return number if transfer < 0 else _WORDS + 2 * transfer + isinstance(message, Landed)


def rank(name: int) -> int:
    """The order of peers at the same nanosecond: hosts first, by number; then the controller and clients."""
    return name if name >= 0 else (1 << 40) - name


class Together(msgspec.Struct, frozen=True):
    """Several messages as one message on the network."""

    messages: tuple[Any, ...]
    nbytes: int  # without contents
    contents: int


class SimLink:
    """One direction of a connection."""

    __slots__ = ("alive", "count", "held", "last", "receiver", "sender", "source")

    def __init__(self, sender: Name, receiver: Name, source: int) -> None:
        self.sender, self.receiver = sender, receiver
        self.source = source  # of its jitter
        self.alive = True  # until either end dies: what is under way is lost then
        self.count = 0
        self.last = 0  # when the last message sent so far arrives, but for words about contents
        # messages that wait while the connection is cut; None: it is not cut
        self.held: list[Any] | None = None


class Network:
    """Carries control messages, and calls `arrive(receiver, sender, number, message)` at the receiver's process."""

    def __init__(
        self, clock: SimClock, latency: int, byte_ps: int, jitter: int, seed: int,
        arrive: Callable[[Name, Name, int, Any], None],
    ) -> None:  # fmt: skip
        self._clock = clock
        self.latency, self.byte_ps, self.jitter, self._seed = latency, byte_ps, jitter, seed
        self.arrive = arrive
        self._links: dict[tuple[Name, Name], SimLink] = {}
        self._cuts: dict[tuple[Name, Name], int] = {}  # how often a connection was cut
        self.messages = 0

    def link(self, sender: Name, receiver: Name) -> SimLink:
        found = self._links.get((sender, receiver))
        if found is None:
            source = noise.key(self._seed, link_of(sender, receiver))
            found = self._links[sender, receiver] = SimLink(sender, receiver, source)
        return found

    def count(self, sender: Name, receiver: Name) -> int:
        """The number of the next message on this connection."""
        link = self.link(sender, receiver)
        link.count += 1
        return link.count - 1

    def send(self, sender: Name, receiver: Name, message: Any, nbytes: int, departure: int) -> None:
        link = self._links.get((sender, receiver)) or self.link(sender, receiver)
        number, link.count = link.count, link.count + 1
        self.messages += 1
        if link.held is not None:
            link.held.append((number, message))
            return
        arrival = departure + self.latency + nbytes * self.byte_ps // 1000
        if self.jitter:
            arrival += noise.below(self.jitter + 1, link.source, _drawn_for(message, number))
        if type(message) not in WORDS:
            link.last = arrival = max(arrival, link.last)
        self._clock.at(arrival, self._deliver, link, number, message)

    def send_report(self, sender: Name, receiver: Name, message: m.Reports, departure: int) -> None:
        """Sends one report. Reports on different subjects may overtake each other, as they may in relays."""
        (report,) = message.reports
        arrival = self.report_arrival(sender, receiver, report, departure)
        self._clock.at(arrival, self._deliver, self.link(sender, receiver), report_number(report), message)

    @property
    def report_latency(self) -> int:
        """How long a report is under way, without its jitter."""
        return self.latency + REPORT_BYTES * self.byte_ps // 1000

    def report_arrival(self, sender: Name, receiver: Name, report: m.Report, departure: int) -> int:
        self.messages += 1
        if is_quiet(report):
            return departure + self.latency
        arrival = departure + self.report_latency
        if self.jitter:
            arrival += noise.below(self.jitter + 1, self.link(sender, receiver).source, about(report_number(report)))
        return arrival

    def _deliver(self, link: SimLink, number: int, message: Any) -> None:
        if not link.alive:
            return  # one of the ends has died, and perhaps started again, since this was sent
        if link.held is not None:
            link.held.append((number, message))
            return
        self.arrive(link.receiver, link.sender, number, message)

    # --- trouble ----------------------------------------------------------------------------------------

    def end(self, name: Name) -> None:
        """Ends a process: all messages on their way to it and from it are lost."""
        for pair in [pair for pair in self._links if name in pair]:
            self._links.pop(pair).alive = False

    def partners(self, name: Name) -> list[Name]:
        """The processes that have a connection to this one."""
        return sorted({sum(pair) - name for pair in self._links if name in pair})

    def cut(self, one: Name, other: Name) -> None:
        self._cuts[one, other] = self.cuts(one, other) + 1
        for pair in ((one, other), (other, one)):
            link = self.link(*pair)
            if link.held is None:
                link.held = []

    def mend(self, one: Name, other: Name) -> None:
        """Ends a cut: what was held arrives now, in order."""
        for sender, receiver in ((one, other), (other, one)):
            link = self.link(sender, receiver)
            held, link.held = link.held or [], None
            arrival = max(self._clock.now + self.latency, link.last)
            for number, message in sorted(held, key=lambda pair: pair[0]):
                self._clock.at(arrival, self._deliver, link, number, message)
            link.last = arrival

    def cuts(self, one: Name, other: Name) -> int:
        return self._cuts.get((one, other), 0)

    def holds(self, hosts: Spans) -> bool:
        """Whether a connection of one of these hosts is cut."""
        return any(
            link.held is not None and (spans.contains(hosts, one) or spans.contains(hosts, other))
            for (one, other), link in self._links.items()
        )

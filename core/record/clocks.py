"""Another process's clock, told from short exchanges with it: how far it is from ours, and how wrong that may be.

    ours      asked -------------------------> answered         theirs = ours + offset
    theirs            received ---> sent

However long either way took, at `asked` at the earliest their clock showed `received`, and at `answered` at the latest
it showed `sent`: so the offset lies between `sent - answered` and `received - asked`, whose middle is Cristian's and
NTP's estimate, and whose width is the round trip. Two clocks drift apart by no more than `rate` parts per million: so
what is known at one time is known at any other, less well by that much of the time between; and all that has been heard
is true at once, so what holds is the intersection.

    heard(exchange)      what was learned; ValueError if no two clocks can have said this
    at(ours)             Estimate(offset, bound) at a time of ours, past or to come; None where nothing is known
    forget(ours)         what was known says nothing of times from then on: their clock is another one

The true offset is never further than `bound` from `offset`, unless a clock runs off faster than `rate`. If that is seen
(exchanges contradict each other: a clock has jumped), all that was known before is forgotten, and `jumps` counts it.
Neighbours: `backend.node.clock_sync`, which has the clocks and carries the exchanges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

# Crystals are within 100 parts per million of what they should be, each its own way. A clock that is being corrected
# (NTP slews a monotonic clock too, by up to 500 while it does) may for a while be faster.
RATE = 200
MILLION = 1_000_000
KEPT = 256  # readings; of the older half every second goes when there are more


class Exchange(NamedTuple):
    """Nanoseconds: the outer two by our clock, the inner two by theirs."""

    asked: int
    received: int
    sent: int
    answered: int


class Reading(NamedTuple):
    """At this time of ours the offset was between these two."""

    at: int
    low: int
    high: int


class Estimate(NamedTuple):
    offset: int  # theirs = ours + offset
    bound: int  # and it is not further off than this


def drift(time: int, rate: int) -> int:
    """How far two clocks may move apart in it, rounded up."""
    return -(-abs(time) * rate // MILLION)


def reading(exchange: Exchange, rate: int = RATE) -> Reading:
    """What one exchange says, in its middle. Raises ValueError."""
    asked, received, sent, answered = exchange
    if answered < asked or sent < received:
        raise ValueError(f"{exchange}: an answer came before its question")
    at = (asked + answered) // 2
    # Each side holds at a time of its own, somewhere between the question and the answer.
    off = drift(answered - at, rate)
    low, high = sent - answered - off, received - asked + off
    if low > high:
        raise ValueError(f"{exchange}: an answer took longer there than here, with its way")
    return Reading(at, low, high)


class Clock:
    """`readings` are in order, and each is as tight as all others make it: so at any time the two beside it say all."""

    def __init__(self, rate: int = RATE, kept: int = KEPT) -> None:
        self.rate, self.kept = rate, kept
        self.readings: list[Reading] = []
        self.since: int | None = None  # nothing is known of our times before; None: of all that something is
        self.jumps = 0

    @classmethod
    def restored(cls, readings: Iterable[Reading], since: int | None = None, rate: int = RATE) -> Clock:
        """As another knew it. Raises ValueError."""
        found = cls(rate)
        found.readings, found.since = list(readings), since
        times = [each.at for each in found.readings]
        if times != sorted(set(times)) or any(each.low > each.high for each in found.readings) or rate < 0:
            raise ValueError("these are no readings of a clock")
        return found

    def heard(self, exchange: Exchange) -> None:
        new = reading(exchange, self.rate)
        if self.readings and new.at <= self.readings[-1].at:
            raise ValueError(f"{exchange}: it is older than one that has been heard")
        if self.since is not None and exchange.asked < self.since:
            raise ValueError(f"{exchange}: it is older than what is to be known")
        if self.readings:
            known = self._seen_from(new, self.readings[-1])
            if known.low > known.high or not self._tighten(known):
                self.jumps += 1
                self.forget(exchange.asked)
            else:
                new = known
        self.readings.append(new)
        if len(self.readings) > self.kept:
            del self.readings[1 : self.kept // 2 : 2]

    def forget(self, ours: int) -> None:
        self.readings.clear()
        self.since = ours

    def at(self, ours: int) -> Estimate | None:
        if not self.readings or (self.since is not None and ours < self.since):
            return None
        after = bisect_right(self.readings, ours, key=attrgetter("at"))
        beside = self.readings[max(0, after - 1) : after + 1]
        low = max(each.low - drift(ours - each.at, self.rate) for each in beside)
        high = min(each.high + drift(ours - each.at, self.rate) for each in beside)
        offset = (low + high) // 2
        return Estimate(offset, max(0, high - offset))

    def _tighten(self, new: Reading) -> bool:
        """What is new says something of earlier times, too. False: it contradicts them."""
        for number in range(len(self.readings) - 1, -1, -1):
            old = self.readings[number]
            better = self._seen_from(old, new)
            if better == old:
                break  # nor does it say anything of what was before
            if better.low > better.high:
                return False
            self.readings[number] = better
        return True

    def _seen_from(self, one: Reading, other: Reading) -> Reading:
        """`one`, with what `other` says of its time."""
        off = drift(one.at - other.at, self.rate)
        return Reading(one.at, max(one.low, other.low - off), min(one.high, other.high + off))

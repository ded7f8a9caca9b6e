"""Estimates how far another process's clock is from ours, with an error bound, from short exchanges of messages.

    ours      asked -------------------------> answered         theirs = ours + offset
    theirs            received ---> sent

Their clock showed `received` at our time `asked` or later, and `sent` at our time `answered` or earlier, however long
either message took. So the offset lies between `sent - answered` and `received - asked`. The middle is Cristian's and
NTP's estimate, the width is the time on the wire. Two clocks drift apart by at most `rate` parts per million. So an
interval that holds at one time also holds at any other time, if it is widened by that part of the time between. All
intervals hold at once, so their intersection holds.

    heard(exchange)      use this exchange; ValueError if no two clocks can show these times
    at(ours)             Estimate(offset, bound) at a time of ours, past or future; None if nothing is known of it
    forget(ours)         from that time on, use nothing that was known before, because their clock is another one

The true offset is never further than `bound` from `offset`, unless a clock runs wrong by more than `rate`. If exchanges
contradict each other, a clock has jumped: everything known before is forgotten, and `jumps` counts it. Neighbour:
`backend.node.clock_sync`, which has the clocks and carries the exchanges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

# Crystals are within 100 parts per million of their nominal rate, in either direction. While NTP corrects a monotonic
# clock, the clock may be wrong by up to 500.
RATE = 200
MILLION = 1_000_000
KEPT = 256  # readings; if there are more, every second one of the older half is dropped


class ClockExchange(NamedTuple):
    """The four times of one exchange in nanoseconds: the first and last by our clock, the others by theirs."""

    asked: int
    received: int
    sent: int
    answered: int


class Reading(NamedTuple):
    """The bounds of the offset at one time of ours."""

    at: int
    low: int
    high: int


class Estimate(NamedTuple):
    offset: int  # theirs = ours + offset
    bound: int  # the largest possible error of `offset`


def drift(time: int, rate: int) -> int:
    """Return how far two clocks may drift apart in this time, rounded up."""
    return -(-abs(time) * rate // MILLION)


def reading(exchange: ClockExchange, rate: int = RATE) -> Reading:
    """Return the bounds that one exchange gives, at its middle. Raise ValueError if it is impossible."""
    asked, received, sent, answered = exchange
    if answered < asked or sent < received:
        raise ValueError(f"{exchange}: an answer came before its question")
    at = (asked + answered) // 2
    # Each bound holds at some time between `asked` and `answered`, so it is widened by the drift to the middle.
    slack = drift(answered - at, rate)
    low, high = sent - answered - slack, received - asked + slack
    if low > high:
        raise ValueError(f"{exchange}: it took longer by their clock than the whole exchange by ours")
    return Reading(at, low, high)


class PeerClock:
    """What is known of one other clock.

    `readings` are in the order of time. Each is as tight as all others make it, so the two next to a time say all that
    is known of that time.
    """

    def __init__(self, rate: int = RATE, kept: int = KEPT) -> None:
        self.rate, self.kept = rate, kept
        self.readings: list[Reading] = []
        # nothing is known of earlier times of ours; None: there is no such limit
        self.since: int | None = None
        self.jumps = 0

    @classmethod
    def restored(cls, readings: Iterable[Reading], since: int | None = None, rate: int = RATE) -> PeerClock:
        """Make a clock from the readings of another one. Raise ValueError if these are impossible."""
        clock = cls(rate)
        clock.readings, clock.since = list(readings), since
        times = [each.at for each in clock.readings]
        if times != sorted(set(times)) or any(each.low > each.high for each in clock.readings) or rate < 0:
            raise ValueError("these cannot be the readings of a clock")
        return clock

    def heard(self, exchange: ClockExchange) -> None:
        new = reading(exchange, self.rate)
        if self.readings and new.at <= self.readings[-1].at:
            raise ValueError(f"{exchange}: it is older than the last exchange")
        if self.since is not None and exchange.asked < self.since:
            raise ValueError(f"{exchange}: it is from before {self.since}, when the clock was forgotten")
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
        """Tighten the earlier readings by a new one. Return False if it contradicts them."""
        for number in range(len(self.readings) - 1, -1, -1):
            old = self.readings[number]
            better = self._seen_from(old, new)
            if better == old:
                break  # it does not tighten any earlier reading either
            if better.low > better.high:
                return False
            self.readings[number] = better
        return True

    def _seen_from(self, one: Reading, other: Reading) -> Reading:
        """Return `one`, tightened by what `other` says of its time."""
        slack = drift(one.at - other.at, self.rate)
        return Reading(one.at, max(one.low, other.low - slack), min(one.high, other.high + slack))

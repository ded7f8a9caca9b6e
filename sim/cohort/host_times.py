"""When something happens at each host of an island: as one number, as a vector, or as a pattern that is shifted.

Where nothing is drawn at random, each order takes as long to every host as the one before, and gangs follow one another
in the same pattern. Such times are `ShiftedTimes`: a `TimePattern`, which is a vector that never changes, and a number
more. What a gang needs of them (the first, the last, the later of two) takes no longer for many hosts than for one. A
vector is made of them when somebody looks at single hosts (`as_vector`).

Neighbours: `order_times` makes patterns; `event_times`, `island` and `gangs` go on with them; the trace packs each
pattern once. The functions that matter: `TimePatterns.later`, `as_vector`, `latest`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..engine import Ints

KEPT = 16  # patterns made of two others that are remembered: each has a number for each host


class TimePattern:
    """`first` and `last`: its smallest and largest number."""

    __slots__ = ("first", "last", "vector")

    def __init__(self, vector: Ints) -> None:
        self.vector = vector
        self.first, self.last = int(np.minimum.reduce(vector)), int(np.maximum.reduce(vector))


class ShiftedTimes(msgspec.Struct, eq=False, gc=False):
    """At each host the pattern's number and `at`."""

    pattern: TimePattern
    at: int

    def __add__(self, more: int) -> ShiftedTimes:
        return ShiftedTimes(self.pattern, self.at + more)


HostTimes: TypeAlias = Ints | ShiftedTimes


class TimePatterns:
    """The patterns of one island. `even`: the same time at all its hosts."""

    def __init__(self, hosts: int) -> None:
        self.even = TimePattern(np.zeros(hosts, dtype=np.int64))
        self._later = lru_cache(maxsize=KEPT)(_later_of_both)

    def later(self, one: HostTimes | int, other: HostTimes | int) -> HostTimes | int:
        """At each host the later of both. The second may be a number; if both are, so is the answer."""
        if isinstance(one, int):
            return max(one, other) if isinstance(other, int) else self.later(other, one)
        if isinstance(one, ShiftedTimes) and isinstance(other, int):
            its, at = self.even, other
        elif isinstance(one, ShiftedTimes) and isinstance(other, ShiftedTimes):
            its, at = other.pattern, other.at
        else:
            # a vector that decides nothing must not make vectors of all that follows
            if isinstance(one, ShiftedTimes) and latest(other) <= earliest(one):
                return one
            if isinstance(other, ShiftedTimes) and latest(one) <= earliest(other):
                return other
            found: Ints = np.maximum(as_vector(one), other if isinstance(other, int) else as_vector(other))
            return found
        mine, apart = one.pattern, at - one.at
        if mine.first >= its.last + apart or (mine is its and apart <= 0):
            return one
        if its.first + apart >= mine.last or mine is its:
            return ShiftedTimes(its, at)
        return ShiftedTimes(self._later(mine, its, apart), one.at)


def _later_of_both(mine: TimePattern, its: TimePattern, apart: int) -> TimePattern:
    return TimePattern(np.maximum(mine.vector, its.vector + apart))


def as_vector(when: HostTimes | int, number: int = 0) -> Ints:
    """`number`: of hosts, for which it may be one time."""
    if isinstance(when, ShiftedTimes):
        return when.pattern.vector + when.at
    return np.full(number, when, dtype=np.int64) if isinstance(when, int) else when


def at_rows(when: HostTimes, rows: slice | NDArray[np.intp]) -> Ints:
    """The times at some hosts."""
    if isinstance(when, ShiftedTimes):
        return when.pattern.vector[rows] + when.at
    return when[rows]


def at_one(when: HostTimes | int, row: int = 0) -> int:
    """The time at one host: the only one, or the first, if no other is named."""
    if isinstance(when, ShiftedTimes):
        return when.at + int(when.pattern.vector[row])
    return when if isinstance(when, int) else int(when[row])


def earliest(when: HostTimes | int) -> int:
    if isinstance(when, ShiftedTimes):
        return when.at + when.pattern.first
    return when if isinstance(when, int) else int(np.minimum.reduce(when))


def latest(when: HostTimes | int) -> int:
    if isinstance(when, ShiftedTimes):
        return when.at + when.pattern.last
    return when if isinstance(when, int) else int(np.maximum.reduce(when))

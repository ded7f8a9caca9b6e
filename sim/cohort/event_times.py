"""When events happened at the hosts of an island: one table for all hosts, whichever of them are one part now.

A host carries a command out when the last of its causes has happened there. Entries whose times are past at all hosts
are dropped: what follows from an event of now is not sooner than now, so they decide nothing any more.

Neighbours: `commands` asks when; `island` and `commands` say what happened.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from core.protocol import Cause

from ..engine import Ints
from .host_times import HostTimes, TimePatterns, as_vector, at_one, at_rows, latest
from .routes import Rows

KEPT = 512  # causes of each kind that are kept, past or not


class TimesOfSome(msgspec.Struct, frozen=True, eq=False):
    """Times at some hosts. It was never, so far, at the others."""

    rows: Rows
    when: HostTimes | int


class EventTimes:
    """By cause: the times at all hosts of the island, or one number if it was the same for all; or those of some
    hosts."""

    def __init__(self, hosts: int, patterns: TimePatterns) -> None:
        self._hosts, self._patterns = hosts, patterns
        self._kinds: dict[str, dict[int, HostTimes | int | TimesOfSome]] = {}

    def put(self, cause: Cause, rows: Rows, number: int, when: HostTimes | int, now: int) -> None:
        """`number`: of rows; times of fewer than all are no pattern. An event happens once at each host."""
        times = self._kinds.setdefault(cause[0], {})
        if number == self._hosts:
            times[cause[1]] = when
        elif cause[1] not in times:
            times[cause[1]] = TimesOfSome(rows, when)
        else:
            vector = times[cause[1]]
            if isinstance(vector, TimesOfSome):
                vector = times[cause[1]] = self._at_all(vector)
            elif not isinstance(vector, np.ndarray):
                vector = times[cause[1]] = np.zeros(self._hosts, dtype=np.int64)
            vector[rows] = when if isinstance(when, int) else as_vector(when)
        if len(times) > KEPT:
            oldest = next(iter(times))
            if _latest(times[oldest]) <= now:
                del times[oldest]

    def latest(self, causes: Sequence[Cause], rows: Rows, number: int) -> HostTimes | int:
        """When the last of these causes has happened at these hosts."""
        found: HostTimes | int = 0
        row = rows.start if number == 1 and isinstance(rows, slice) else -1
        for kind, which in causes:
            when = self._kinds.get(kind, {}).get(which, 0)
            if isinstance(when, TimesOfSome):
                if when.rows is rows or (isinstance(rows, slice) and _same(when.rows, rows)):
                    when = when.when if row < 0 else at_one(when.when)
                else:
                    when = self._at_all(when)[rows] if row < 0 else at_one(self._at_all(when), row)
            elif row >= 0 and not isinstance(when, int):
                when = at_one(when, row)
            elif number != self._hosts and not isinstance(when, int):
                when = at_rows(when, rows)
            found = when if isinstance(found, int) and not found else self._patterns.later(when, found)
        return found

    def _at_all(self, some: TimesOfSome) -> Ints:
        vector: Ints = np.zeros(self._hosts, dtype=np.int64)
        vector[some.rows] = some.when if isinstance(some.when, int) else as_vector(some.when)
        return vector

    def past(self, cause: Cause, now: int) -> bool:
        """Whether an event that happens at no host any more is past at all of them."""
        when = self._kinds.get(cause[0], {}).get(cause[1], 0)
        return _latest(when) <= now


def _same(one: Rows, other: slice) -> bool:
    return isinstance(one, slice) and one == other


def _latest(when: HostTimes | int | TimesOfSome) -> int:
    return latest(when.when if isinstance(when, TimesOfSome) else when)

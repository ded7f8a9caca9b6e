"""When events happened at the hosts of an island: one table for all hosts, whichever of them are one part now.

A host carries a command out when the last of its causes has happened there. Entries whose times are past at all hosts
are dropped: what follows from an event of now is not sooner than now, so they decide nothing any more.

Neighbours: `commands` asks when; `island` and `commands` say what happened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.protocol import Cause

from .host_times import HostTimes, TimePatterns, as_vector, at_one, latest
from .routes import Rows

KEPT = 512  # causes of each kind that are kept, past or not


class EventTimes:
    """By cause: the times at all hosts of the island, or one number if it was the same for all."""

    def __init__(self, hosts: int, patterns: TimePatterns) -> None:
        self._hosts, self._patterns = hosts, patterns
        self._kinds: dict[str, dict[int, HostTimes | int]] = {}

    def put(self, cause: Cause, rows: Rows, number: int, when: HostTimes | int, now: int) -> None:
        """`number`: of rows; times of fewer than all are no pattern. An event happens once at each host."""
        times = self._kinds.setdefault(cause[0], {})
        if number == self._hosts:
            times[cause[1]] = when
        else:
            vector = times.get(cause[1])
            if not isinstance(vector, np.ndarray):
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
            if row >= 0:
                when = at_one(when, row)
            if isinstance(when, int):
                found = max(found, when) if isinstance(found, int) else self._patterns.later(found, when)
                continue
            if number != self._hosts:
                when = as_vector(when)[rows]
            found = when if isinstance(found, int) and not found else self._patterns.later(when, found)
        return found

    def past(self, cause: Cause, now: int) -> bool:
        """Whether an event that happens at no host any more is past at all of them."""
        when = self._kinds.get(cause[0], {}).get(cause[1], 0)
        return _latest(when) <= now


def _latest(when: HostTimes | int) -> int:
    return when if isinstance(when, int) else latest(when)

"""When events happened at the hosts of an island: one table of vectors, whichever hosts are one part now.

A host carries a command out when the last of its causes has happened there. Entries whose times are past at all hosts
are dropped: what follows from an event of now is not sooner than now, so they decide nothing any more.

Neighbours: `commands` asks when; `island` and `commands` say what happened.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.protocol import Cause

from ..engine import Ints
from .routes import Rows

KEPT = 512  # causes of each kind that are kept, past or not


class EventTimes:
    """By cause: a vector with an entry for each host of the island, or one number if the time was the same for all."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        self._kinds: dict[str, dict[int, Ints | int]] = {}

    def put(self, cause: Cause, rows: Rows, number: int, when: Ints | int, now: int) -> None:
        """`number`: of rows. An event happens once at each host."""
        times = self._kinds.setdefault(cause[0], {})
        if number == self._hosts:
            times[cause[1]] = when
        else:
            vector = times.get(cause[1])
            if not isinstance(vector, np.ndarray):
                vector = times[cause[1]] = np.zeros(self._hosts, dtype=np.int64)
            vector[rows] = when
        if len(times) > KEPT:
            oldest = next(iter(times))
            if _latest(times[oldest]) <= now:
                del times[oldest]

    def latest(self, causes: Sequence[Cause], rows: Rows, number: int) -> Ints | int:
        """When the last of these causes has happened at these hosts."""
        latest: Ints | int = 0
        for kind, which in causes:
            when = self._kinds.get(kind, {}).get(which, 0)
            if isinstance(when, int):
                latest = max(latest, when) if isinstance(latest, int) else np.maximum(latest, when)
                continue
            if number != self._hosts:
                when = when[rows]
            latest = when if isinstance(latest, int) and not latest else np.maximum(latest, when)
        return latest

    def past(self, cause: Cause, now: int) -> bool:
        """Whether an event that happens at no host any more is past at all of them."""
        when = self._kinds.get(cause[0], {}).get(cause[1], 0)
        return _latest(when) <= now


def _latest(when: Ints | int) -> int:
    return when if isinstance(when, int) else int(when.max())


def as_vector(when: Ints | int, number: int) -> Ints:
    return np.full(number, when, dtype=np.int64) if isinstance(when, int) else when


def at_one(when: Ints | int) -> int:
    """The time at the only host."""
    return when if isinstance(when, int) else int(when[0])

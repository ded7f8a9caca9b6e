"""Times of one thread that writes to many hosts, or receives from many, as vectors with one entry for each host."""

from __future__ import annotations

import numpy as np

from ..engine import Ints, each_below, keys


class Jitter:
    """Random delays of up to `limit` nanoseconds, drawn anew for each host and message; none if `limit` is 0."""

    def __init__(self, limit: int, seed: int, hosts: int) -> None:
        self._limit, self._hosts = limit, hosts
        self._sources = keys(seed, np.arange(hosts, dtype=np.int64))
        self._count = 0

    def draw(self) -> Ints:
        if not self._limit:
            return np.zeros(self._hosts, np.int64)
        self._count += 1
        return each_below(self._limit + 1, self._sources, self._count)


def one_by_one(start: int, cost: int, hosts: int) -> Ints:
    """When each host has been served by a thread that begins at `start`."""
    return start + cost * np.arange(1, hosts + 1, dtype=np.int64)


def served(arrivals: Ints, cost: int) -> int:
    """When one thread has taken all of these, first come first served."""
    waiting = np.arange(len(arrivals), 0, -1, dtype=np.int64)  # itself, and all behind it
    return int((np.sort(arrivals) + cost * waiting).max())

"""Simulated time: calls happen in the order of their times, and at one time in the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clock:
    """The queue of calls. `pending` counts them without timers: a world with only timers left is at rest."""

    def __init__(self) -> None:
        self.now = 0
        self.pending = 0
        self._heap: list[tuple[int, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: int, call: Callable[..., None], *args: Any) -> None:
        """Call a function at this time. A time in the past means now, after the calls that are already due."""
        self.pending += 1
        self._push(time, True, call, args)

    def after(self, delay: int, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, call, *args)

    def timer(self, time: int, call: Callable[..., None], *args: Any) -> None:
        self._push(time, False, call, args)

    def _push(self, time: int, counts: bool, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._count += 1
        heappush(self._heap, (max(time, self.now), self._count, counts, call, args))

    def next_time(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        self.now, _, counts, call, args = heappop(self._heap)
        self.pending -= counts
        call(*args)

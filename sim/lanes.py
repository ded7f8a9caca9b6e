"""What is done one after another: a thread of a process, and a port that carries one thing at a time.

A `Lane` serves events in the order (arrival, source, number): it takes each for its cost, and then for as long
as what came of it costs. A `Port` is a lane for bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from .clock import LATE, Clock

Order = tuple[int, int]  # source, and the number of the thing among those from there


class Lane:
    """`serve(what, now)` is called when the cost of taking it has been paid; it returns when the lane is free."""

    __slots__ = ("_busy", "_clock", "_serve", "_waiting", "free")

    def __init__(self, clock: Clock, serve: Callable[[Any, int], int]) -> None:
        self._clock = clock
        self._serve = serve
        self._waiting: list[tuple[int, Order, int, Any]] = []
        self._busy = False
        self.free = 0

    def put(self, order: Order, cost: int, what: Any) -> None:
        """It has arrived."""
        heappush(self._waiting, (self._clock.now, order, cost, what))
        if not self._busy:
            self._busy = True
            self._clock.at(max(self.free, self._clock.now), self._take, priority=LATE)

    def _take(self) -> None:
        _, _, cost, what = heappop(self._waiting)
        if cost:
            self._clock.at(self._clock.now + cost, self._done, what)
        else:
            self._done(what)

    def _done(self, what: Any) -> None:
        self.free = self._serve(what, self._clock.now)
        if self._waiting:
            self._clock.at(self.free, self._take, priority=LATE)
        else:
            self._busy = False


class Port:
    """`put` something that takes `time`; `then(*args)` is called when it is through."""

    __slots__ = ("_lane",)

    def __init__(self, clock: Clock) -> None:
        self._lane = Lane(clock, self._through)

    def put(self, order: Order, time: int, then: Callable[..., None], *args: Any) -> None:
        self._lane.put(order, time, (then, args))

    def _through(self, what: tuple[Callable[..., None], tuple[Any, ...]], now: int) -> int:
        then, args = what
        then(*args)
        return now

"""What is done one after another: a thread of a process, and a port that carries one thing at a time.

A `Lane` serves events in the order (arrival, source, number): it takes each for its cost, and then for as long
as what came of it costs; where cores are short (`sim.hosts.cores`), it has one for all of that time. What is known
ahead to come of which nothing follows but its cost, a swarm of reports say, is told by `absorb`: it is worked off in
its place, all at once. A `Port` is a lane for bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np

from .clock import LATE, Clock
from .jitter import Ints

NOTHING = object()  # comes of it but its cost
NEVER = 1 << 63  # no arrival is as late
HELD = -1  # for what is served, until `go_on`
Order = tuple[int, int]  # source, and the number of the thing among those from there


class CoreShare(Protocol):
    """What a thread needs of a machine on which it may have to wait for a core."""

    def ask(self, order: Order, begin: Callable[..., None], *args: Any) -> None: ...

    def give_back(self, at: int) -> None: ...

    def let_go(self) -> None: ...


class Swarm:
    """Arrivals, in order, and who they come from."""

    __slots__ = ("at", "cost", "first", "sources", "times")

    def __init__(self, times: Ints, sources: Ints, cost: int) -> None:
        self.times, self.sources, self.cost = times, sources, cost
        self.at = 0
        self.first = int(times[0])

    def before(self, arrival: int, source: int) -> int:
        """How many of them come before that."""
        times = self.times
        stop = int(times.searchsorted(arrival))
        if stop < len(times) and times[stop] == arrival:
            end = int(times.searchsorted(arrival, "right"))
            stop += int(self.sources[stop:end].searchsorted(source))
        return max(stop, self.at)


class Lane:
    """`serve(what, now)` is called when the cost of taking it has been paid; it returns when the lane is free, or HELD:
    when it is told to go on. Until then it needs no core."""

    __slots__ = ("_busy", "_clock", "_count", "_serve", "_share", "_swarms", "_waiting", "free")

    def __init__(
        self, clock: Clock, serve: Callable[[Any, int], int], share: CoreShare | None = None
    ) -> None:
        self._clock = clock
        self._serve = serve
        self._share = share  # of its machine's cores, where they may be short
        self._waiting: list[tuple[int, Order, int, int, Any]] = []
        self._count = 0
        self._busy = False
        self._swarms: list[Swarm] = []
        self.free = 0

    def absorb(self, times: Ints, sources: Ints, cost: int, number: int = 0) -> None:
        """These will come, each for its cost: times in order, none of them past; equal ones by source."""
        if self._share is not None:  # how long each takes is not known ahead
            for at, source in zip(times.tolist(), sources.tolist(), strict=True):
                self._clock.at(at, self.put, (source, number), cost, NOTHING)
        elif len(times):
            self._swarms.append(Swarm(times, sources, cost))

    def put(self, order: Order, cost: int, what: Any) -> None:
        """It has arrived."""
        self._count += 1
        heappush(self._waiting, (self._clock.now, order, self._count, cost, what))
        if not self._busy:
            self._busy = True
            self._clock.at(max(self.free, self._clock.now), self._take, priority=LATE)

    def _take(self) -> None:
        if self._swarms:
            arrival, (source, _), *_ = self._waiting[0]
            self._work_off(arrival, source)
            if self.free > self._clock.now:
                self._clock.at(self.free, self._take, priority=LATE)
                return
        _, order, _, cost, what = heappop(self._waiting)
        if self._share is None:
            self._begin(cost, what)
        else:
            self._share.ask(order, self._begin, cost, what)

    def _begin(self, cost: int, what: Any) -> None:
        if cost:
            self._clock.at(self._clock.now + cost, self._done, what)
        else:
            self._done(what)

    def _work_off(self, arrival: int, source: int) -> None:
        """All of the swarms that comes before that: who comes i-th of n is through no sooner than its own arrival
        and the costs from it on."""
        times, costs = [], []
        for swarm in self._swarms:
            if swarm.first > arrival:
                continue
            stop = swarm.before(arrival, source)
            if stop > swarm.at:
                times.append(swarm.times[swarm.at : stop])
                costs.append(swarm.cost)
                swarm.at = stop
                swarm.first = int(swarm.times[stop]) if stop < len(swarm.times) else NEVER
        if not times:
            return
        self._swarms = [swarm for swarm in self._swarms if swarm.first != NEVER]
        if len(times) == 1:
            number, cost = len(times[0]), costs[0]
            latest = int((times[0] - np.arange(number) * cost).max())
            self.free = max(self.free, latest) + number * cost
            return
        all_times = np.concatenate(times)
        all_costs = np.repeat(costs, [len(each) for each in times])
        order = np.argsort(all_times, kind="stable")
        left = np.cumsum(all_costs[order][::-1])[::-1]
        self.free = max(self.free + int(left[0]), int((all_times[order] + left).max()))

    def _done(self, what: Any) -> None:
        now = self._clock.now
        free = now if what is NOTHING else self._serve(what, now)
        if self._share is not None:
            self._share.give_back(max(free, now))
            if free == HELD:
                self._share.let_go()
        if free != HELD:
            self._go_on_at(free)

    def go_on(self) -> None:
        """After HELD."""
        self._go_on_at(self._clock.now)

    def _go_on_at(self, free: int) -> None:
        self.free = free
        if self._waiting:
            self._clock.at(self.free, self._take, priority=LATE)
        else:
            self._busy = False


class Port:
    """`put` something that takes `time`; `then(*args)` is called when its first byte goes through."""

    __slots__ = ("_lane",)

    def __init__(self, clock: Clock) -> None:
        self._lane = Lane(clock, self._through)

    def put(self, order: Order, time: int, then: Callable[..., None], *args: Any) -> None:
        self._lane.put(order, 0, (time, then, args))

    def _through(self, what: tuple[int, Callable[..., None], tuple[Any, ...]], now: int) -> int:
        time, then, args = what
        then(*args)
        return now + time

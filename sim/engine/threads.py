"""Work done one item at a time: a thread of a process (`SimThread`), and threads of a pool (`ThreadPool`).

A `SimThread` serves items in the order (arrival, source, number). Each item occupies the lane for its own cost, and
then until the time that `serve` returns. Where cores are short (`sim.hosts.cores`), the lane holds a core for all
that time. `absorb` announces many future items that have a cost and no other effect, such as a swarm of reports: the
lane accounts for them in their place, all at once, without an event for each. A `TieBreak` puts what several threads
bring in the same nanosecond into an order.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np

from .clock import LATE, SimClock
from .jitter import Ints

NOTHING = object()  # an item that has a cost and no other effect
NEVER = 1 << 63  # later than any arrival
HELD = -1  # returned by `serve`: the lane stays occupied until `go_on`
Order = tuple[int, int]  # source, and the item's number among those of that source


class CoreShare(Protocol):
    """What a thread needs of a machine on which it may have to wait for a core."""

    def ask(self, order: Order, begin: Callable[..., None], *args: Any) -> None: ...

    def give_back(self, at: int) -> None: ...


class Wave:
    """Arrivals relative to a time, with their sources: sorted by both. One wave may come again and again."""

    __slots__ = ("cost", "first", "last", "latest", "number", "offsets", "sources")

    def __init__(self, offsets: Ints, sources: Ints, cost: int) -> None:
        self.offsets, self.sources, self.cost = offsets, sources, cost
        self.number = len(offsets)
        if not self.number:
            self.first, self.last, self.latest = NEVER, (-1, -1), 0
            return
        self.first, self.last = int(offsets[0]), (int(offsets[-1]), int(sources[-1]))
        self.latest = int((offsets - np.arange(self.number) * cost).max())  # see `SimThread._work_off`


class Swarm:
    """An announced wave, whose items have one number. `at`: how many of it are accounted for; `first`: when the next
    of it arrives."""

    __slots__ = ("at", "base", "first", "number", "wave")

    def __init__(self, base: int, wave: Wave, number: int) -> None:
        self.base, self.wave, self.number = base, wave, number
        self.at = 0
        self.first = base + wave.first

    def cut(self, stop: int) -> None:
        """Only the first `stop` of it come."""
        wave, stop = self.wave, max(stop, self.at)
        if stop < wave.number:
            self.first = self.first if stop > self.at else NEVER
            self.wave = Wave(wave.offsets[:stop], wave.sources[:stop], wave.cost)

    def before(self, arrival: int, order: Order) -> int:
        """The index of the first arrival that does not precede (arrival, order)."""
        wave, arrival = self.wave, arrival - self.base
        source = order[0] + (self.number < order[1])  # whether an item of the same source precedes it
        if (arrival, source) > wave.last:
            return wave.number
        times = wave.offsets
        stop = int(times.searchsorted(arrival))
        if stop < wave.number and times[stop] == arrival:
            end = int(times.searchsorted(arrival, "right"))
            stop += int(wave.sources[stop:end].searchsorted(source))
        return max(stop, self.at)


Item = tuple[int, Order, int, int, Any]  # (arrival, order, count, cost, what): items are served in this order


class SimThread:
    """A thread. `serve(item, now)` is called when an item's cost has been paid. It returns when the lane is free
    again, or HELD: the lane is then occupied, without a core, until `go_on` is called.

    The next item is certain once its nanosecond is over, so it could be taken then, at `LATE`. Mostly no other item
    comes in the same nanosecond. So the lane takes an item at once, as long as it may be put back (`_take_back`) if an
    item comes that precedes it. That saves an event for each item."""

    __slots__ = (
        "_busy", "_clock", "_count", "_instead", "_serve", "_served", "_share", "_swarms", "_undo", "_waiting", "free",
    )  # fmt: skip

    def __init__(self, clock: SimClock, serve: Callable[[Any, int], int], share: CoreShare | None = None) -> None:
        self._clock = clock
        self._serve = serve
        self._share = share  # of its machine's cores, where these may be short
        self._waiting: list[Item] = []
        self._count = 0
        self._busy = False
        self._swarms: list[Swarm] = []
        self._served: Item | None = None  # whose cost is being paid
        self._instead: dict[int, Any] = {}  # by the count of an item: what it is instead
        # if `_served` was taken at once: `free` and the swarms as they were
        self._undo: tuple[int, list[tuple[Swarm, int, int]]] | None = None
        self.free = 0

    @property
    def idle(self) -> bool:
        return not self._busy

    def absorb(self, times: Ints, sources: Ints, cost: int, number: int = 0) -> None:
        """Announces items that cost `cost` each. `times` are sorted, none is past; equal times are sorted by
        source."""
        if len(times):
            self.absorb_wave(0, Wave(times, sources, cost), number)

    def absorb_wave(self, base: int, wave: Wave, number: int = 0) -> None:
        if self._share is not None:  # how long each takes is not known in advance
            for at, source in zip((base + wave.offsets).tolist(), wave.sources.tolist(), strict=True):
                self._clock.at(at, self.put, (source, number), wave.cost, NOTHING)
            return
        swarm = Swarm(base, wave, number)
        if self._undo is not None:
            if swarm.first <= self._served[0]:  # type: ignore[index]
                self._take_back()
            else:
                self._undo[1].append((swarm, swarm.at, swarm.first))  # it stays, if the item is put back
        self._swarms.append(swarm)

    def recant(self, sources: range) -> None:
        """Items of these sources that were announced, and have not arrived before now, will not come."""
        if self._share is not None:
            self._clock.drop(lambda call, args: call == self.put and args[2] is NOTHING and args[0][0] in sources)
            return
        before = self._undo[1] if self._undo is not None else []
        for swarm in dict.fromkeys([*self._swarms, *[swarm for swarm, _, _ in before]]):
            wave = swarm.wave
            if int(wave.sources[0]) in sources:  # a swarm is of one island
                swarm.cut(int(wave.offsets.searchsorted(self._clock.now - swarm.base)))
        self._swarms = [swarm for swarm in self._swarms if swarm.first != NEVER]
        before[:] = [each for each in before if each[0].wave.number > each[1]]

    def unfold(self, sources: range, what: Callable[[Order], Any]) -> None:
        """Announced items of these sources that have arrived, and are not over, become items by themselves: `what` says
        which. `catch_up` must follow."""
        if self._share is not None:
            return  # they were put in when they arrived
        if self._undo is not None:  # the item whose cost is being paid may have waited for some of them
            assert self._served is not None
            free, swarms = self._undo
            for swarm, at, first in swarms:
                swarm.at, swarm.first = at, first
            self._swarms = list(dict.fromkeys([*[swarm for swarm, _, _ in swarms], *self._swarms]))
            heappush(self._waiting, (*self._served[:-1], self._served[-1]))  # another tuple, as in `_take_back`
            self.free, self._served, self._undo = free, None, None
        mine = [swarm for swarm in self._swarms if int(swarm.wave.sources[0]) in sources]
        self._swarms = [swarm for swarm in self._swarms if swarm not in mine]
        for swarm in mine:
            wave = swarm.wave
            for at in range(swarm.at, wave.number):
                self._count += 1
                order = int(wave.sources[at]), swarm.number
                arrival = swarm.base + int(wave.offsets[at])
                heappush(self._waiting, (arrival, order, self._count, wave.cost, what(order)))

    def catch_up(self) -> None:
        """Serves what it would have served by now, had it been put in when it arrived."""
        if self._share is not None or self._served is not None:
            return
        now = self._clock.now
        self._clock.drop(lambda call, args: call == self._take)
        self._busy = bool(self._waiting)
        while self._waiting:
            item = self._waiting[0]
            self._work_off(item[0], item[1])
            until = max(self.free, item[0]) + item[3]
            if until >= now:
                if item[3]:
                    self._served = heappop(self._waiting)
                    self._clock.at(until, self._done, item)
                else:
                    self._clock.at(until, self._take, priority=LATE)
                return
            heappop(self._waiting)
            what = self._instead.pop(item[2], item[4])
            free = now if what is NOTHING else self._serve(what, now)
            self.free = until if free == now else free
        self._busy = False

    def exchange(self, other: Callable[[Order, Any], Any]) -> None:
        """Items that have arrived and are not over become others, for the same cost."""
        items = self._waiting if self._served is None else [*self._waiting, self._served]
        for item in items:
            self._instead[item[2]] = other(item[1], self._instead.get(item[2], item[4]))

    def has(self, wanted: Callable[[Any], bool]) -> bool:
        """Whether such an item has arrived, and has not been served."""
        items = self._waiting if self._served is None else [*self._waiting, self._served]
        return any(wanted(self._instead.get(item[2], item[4])) for item in items)

    def put(self, order: Order, cost: int, what: Any) -> None:
        """Takes in an item that arrives now."""
        self._count += 1
        now = self._clock.now
        item = (now, order, self._count, cost, what)
        if not self._busy and not self._swarms and cost and self._share is None:  # nothing can precede it: see `_next`
            self._busy, self._served, self._undo = True, item, (self.free, [])
            self._clock.at(max(self.free, now) + cost, self._done, item)
            return
        heappush(self._waiting, item)
        if not self._busy:
            self._busy = True
            self._next()
        elif self._undo is not None and item < self._served:  # type: ignore[operator]
            self._take_back()

    def _next(self) -> None:
        """Takes the first item when the lane is free: at once, if it has a cost."""
        now, item = self._clock.now, self._waiting[0]
        if self._share is not None or not item[3]:
            self._clock.at(max(self.free, now), self._take, priority=LATE)
            return
        self._undo = self.free, [(swarm, swarm.at, swarm.first) for swarm in self._swarms]
        heappop(self._waiting)
        if self._swarms:
            self._work_off(item[0], item[1])
        self._served = item
        self._clock.at(max(self.free, now) + item[3], self._done, item)

    def _take_back(self) -> None:
        """Puts the item that was taken at once back, to choose again when the nanosecond is over."""
        assert self._served is not None
        assert self._undo is not None
        # another tuple: `_done` will not know the old one
        heappush(self._waiting, (*self._served[:-1], self._served[-1]))
        self.free, swarms = self._undo
        for swarm, at, first in swarms:
            swarm.at, swarm.first = at, first
        self._swarms = [swarm for swarm, _, _ in swarms]
        self._served = self._undo = None
        self._clock.at(max(self.free, self._clock.now), self._take, priority=LATE)

    def _take(self) -> None:
        """Takes the first item, at `LATE`."""
        if self._swarms:
            arrival, order, *_ = self._waiting[0]
            self._work_off(arrival, order)
            if self.free > self._clock.now:
                self._clock.at(self.free, self._take, priority=LATE)
                return
        item = self._served = heappop(self._waiting)
        if self._share is None:
            self._begin(item)
        else:
            self._share.ask(item[1], self._begin, item)

    def _begin(self, item: Item) -> None:
        self._served = item
        if item[3]:
            self._clock.at(self._clock.now + item[3], self._done, item)
        else:
            self._done(item)

    def _work_off(self, arrival: int, order: Order) -> None:
        """Accounts for the announced items that precede (arrival, order). With n of them, the lane is free no
        sooner than the arrival of the i-th plus the costs of items i to n."""
        parts: list[tuple[Swarm, int, int]] = []
        for swarm in self._swarms:
            if swarm.first > arrival:
                continue
            start, stop, wave = swarm.at, swarm.before(arrival, order), swarm.wave
            if stop > start:
                parts.append((swarm, start, stop))
                swarm.at = stop
                swarm.first = swarm.base + int(wave.offsets[stop]) if stop < wave.number else NEVER
        if not parts:
            return
        self._swarms = [swarm for swarm in self._swarms if swarm.first != NEVER]
        if len(parts) == 1:
            ((swarm, start, stop),) = parts
            number, wave = stop - start, swarm.wave
            latest = wave.latest
            if number < wave.number:
                latest = int((wave.offsets[start:stop] - np.arange(number) * wave.cost).max())
            self.free = max(self.free, swarm.base + latest) + number * wave.cost
            return
        all_times = np.concatenate([swarm.base + swarm.wave.offsets[start:stop] for swarm, start, stop in parts])
        all_costs = np.repeat([swarm.wave.cost for swarm, _, _ in parts], [stop - start for _, start, stop in parts])
        in_turn = np.argsort(all_times, kind="stable")
        left = np.cumsum(all_costs[in_turn][::-1])[::-1]
        self.free = max(self.free + int(left[0]), int((all_times[in_turn] + left).max()))

    def _done(self, item: Item) -> None:
        if item is not self._served:
            return  # it was put back
        self._undo = self._served = None
        now, what = self._clock.now, item[4]
        if self._instead:
            what = self._instead.pop(item[2], what)
        free = now if what is NOTHING else self._serve(what, now)
        if self._share is not None:
            self._share.give_back(max(free, now))
        if free == HELD:
            return
        self.free = free
        if self._waiting:
            self._next()
        else:
            self._busy = False

    def go_on(self) -> None:
        """Frees the lane after HELD."""
        self.free = self._clock.now
        if self._waiting:
            self._next()
        else:
            self._busy = False


class ThreadPool:
    """Serves things that have a key: those of one key one after another, and of different keys side by side."""

    __slots__ = ("_clock", "_free", "_serve")

    @property
    def idle(self) -> bool:
        return not self._free

    def __init__(self, clock: SimClock, serve: Callable[[Any, int], object]) -> None:
        self._clock, self._serve = clock, serve
        self._free: dict[Any, int] = {}  # by key, while there is work

    def put(self, key: object, cost: int, what: Any) -> None:
        at = self._free[key] = max(self._clock.now, self._free.get(key, 0)) + cost
        self._clock.at(at, self._done, key, what, at)

    def _done(self, key: object, what: Any, at: int) -> None:
        if self._free.get(key) == at:  # several may be done at one time, where they cost nothing
            del self._free[key]
        self._serve(what, at)


class TieBreak:
    """Serves events of a machine that come on several threads: those of one nanosecond in the order of their peers, and
    `last` those for which this is true.

    Else this would depend on which thread was told first, and that differs between the fidelities."""

    __slots__ = ("_clock", "_events", "_last", "_serve")

    @property
    def idle(self) -> bool:
        return not self._events

    def __init__(
        self, clock: SimClock, serve: Callable[[Any, int], object], last: Callable[[Any], bool] = lambda event: False
    ) -> None:
        self._clock, self._serve, self._last = clock, serve, last
        self._events: list[Any] = []

    def put(self, event: Any, now: int) -> int:
        """As `SimThread` calls it: takes in an event, and leaves the thread free."""
        if not self._events:
            self._clock.at(now, self._serve_all, priority=LATE)
        self._events.append(event)
        return now

    def _serve_all(self) -> None:
        events, self._events = self._events, []
        for event in sorted(events, key=self._place):  # events of one peer stay in their order
            self._serve(event, self._clock.now)

    def _place(self, event: Any) -> tuple[bool, int]:
        return self._last(event), event.peer

"""When each host of an island has read an order: as vectors, level by level down its tree.

A host reads orders one after another, and a thread of its own passes them on. An order that finds these threads free
at each host when it comes there takes as long to each as any other of its size to the same hosts. So that is worked out
once for these hosts and a size, and once for two such orders how long one must be written before the other.

Neighbours: `island` asks, for each order; `routes` has the tree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from core.fanout import Tree
from core.model import Island, Spans
from core.protocol import messages as m

from ..engine import Ints
from ..engine import jitter as noise
from ..network import CONTROLLER, link_of
from .host_times import HostTimes, ShiftedTimes, TimePattern, latest
from .routes import CohortRoute, Rows, rows_of

if TYPE_CHECKING:
    from ..hosts import Context

KEPT = 256  # sizes of orders that are remembered
NUMBERS = 1 << 19  # numbers in each of the vectors of passages that are remembered together
RECENT = 16  # passages that may be under way, before those that are over are looked for
NEVER = -(1 << 61)


class OrderPassage:
    """How an order goes to its hosts that finds all threads free. By host, since it began to be written: when it has
    been read, when the thread that passes it on is free, and when it arrived; NEVER where it does not come, or is not
    passed on. Threads that read must be free when it arrives, those that pass it on by `begins`. `over`: when all of
    them are free again; `all_read`: when those have read it for which it is; `whole`: these are all."""

    __slots__ = ("_rows", "all_read", "arrives", "begins", "last", "over", "pattern", "read", "whole", "write")

    def __init__(self, read: Ints, write: Ints, last: Ints, ways: Ints | None, hosts: Rows, whole: bool) -> None:
        self.read, self.write, self.last, self.whole = read, write, last, whole
        self.pattern = TimePattern(np.maximum(read, 0))
        self.arrives = np.where(last == NEVER, -NEVER, last)
        self.begins = np.full(len(read), -NEVER) if ways is None else np.where(ways > 0, read, -NEVER)
        self.over = max(latest(read), latest(write), latest(last))
        self.all_read = latest(read[hosts])
        self._rows: frozenset[int] | None = None

    @property
    def rows(self) -> frozenset[int]:
        """Where it comes."""
        if self._rows is None:
            self._rows = frozenset(np.flatnonzero(self.last > NEVER).tolist())
        return self._rows

    def head_start(self, later: OrderPassage) -> int:
        """How long before a later order this one must be written, so that the later one finds all threads free."""
        if self.rows.isdisjoint(later.rows):
            return NEVER
        busy = np.maximum(self.read, self.last) - later.arrives
        return max(latest(busy), latest(self.write - later.begins))


# The same of one host, as times: when its threads are free, and when its last order arrives.
LoneTimes = tuple[int, int, int]


class OrderTimes:
    """By host: `_read`, when its thread that reads orders is free; `_write`, the one that passes them on; `_last`, when
    the last order arrives. They lag behind `_recent` and `_alone` (see `_catch_up`)."""

    def __init__(self, sim: Context, island: Island, everyone: Spans) -> None:
        self._sim, self._island, self._everyone = sim, island, everyone
        # The last orders, and when each was written, that have found all threads free.
        self._recent: list[tuple[OrderPassage, int]] = []
        self._alone: dict[int, LoneTimes] = {}  # by row: as orders for one host have left them since
        self._alone_until = 0  # when all these are free
        self._read = np.zeros(island.hosts, dtype=np.int64)
        self._write, self._last = self._read.copy(), self._read.copy()
        self._free = 0  # when all these are free; -1: not known
        self._passages: dict[tuple[Spans, int, int], OrderPassage] = {}  # by hosts, bytes, steps
        self._once: set[tuple[Spans, int, int]] = set()  # likewise: came once, and may not come again
        self._most = max(16, min(4 * KEPT, NUMBERS // island.hosts))
        self._costs = lru_cache(maxsize=KEPT)(self._costs_of)
        self._apart: dict[tuple[int, int], int] = {}  # by identities of two: `OrderPassage.head_start`

    def resume(self, read: Ints, write: Ints, last: Ints) -> None:
        """Threads are occupied until these times."""
        self._read, self._write, self._last, self._free = read, write, last, -1
        self._recent.clear()
        self._alone.clear()

    def threads(self) -> tuple[Ints, Ints, Ints]:
        """When those that read orders and pass them on are free, and when the last order arrives."""
        self._catch_up()
        return self._read, self._write, self._last

    def _catch_up(self) -> None:
        """No vector is made for an order that finds all threads free, or that is for one host, unless somebody asks for
        them after it."""
        self._take_in(self._recent)
        self._recent = []
        if self._alone:
            self._read, self._write, self._last = self._read.copy(), self._write.copy(), self._last.copy()
            for row, (read, write, last) in self._alone.items():
                self._read[row], self._write[row], self._last[row] = read, write, last
            self._alone.clear()
            self._free = -1

    def _take_in(self, passed: list[tuple[OrderPassage, int]]) -> None:
        for known, at in passed:
            self._read = np.maximum(self._read, known.read + at)
            self._write = np.maximum(self._write, known.write + at)
            self._last = np.maximum(self._last, known.last + at)
            self._free = max(self._free, at + known.over) if self._free >= 0 else -1

    def seated(self, shape: Tree) -> None:
        """Takes in another tree."""
        base, parents = self._island.base_host, shape.parents
        links = [link_of(parents.get(base + row, CONTROLLER), base + row) for row in range(self._island.hosts)]
        self._links = noise.keys(self._sim.seed, np.array(links, dtype=np.uint64))
        self._forget()

    def send(self, message: m.Ordered, route: CohortRoute, at: int, nbytes: int) -> tuple[HostTimes | int, int]:
        """When each host for which it is has read this order, which begins to be written then; and when all have."""
        steps = len(message.steps)
        everyone = message.hosts == self._everyone
        if not self._sim.network.jitter:
            if route.path and not everyone:
                read = self._pass_down(route.path, at, nbytes, steps)
                return read, read
            key = message.hosts, nbytes, steps
            known = self._passages.get(key) or self._passage(key, route)
            if known is not None and self._finds_free(known, at):
                if known.whole:  # later than all others, at each thread
                    self._recent = [(known, at)]
                    self._alone.clear()
                else:
                    self._pass(known, at)
                return ShiftedTimes(known.pattern, at), at + known.all_read
        self._catch_up()
        self._descend(route, at, nbytes, steps, message.number)
        self._free = -1
        every = self._read
        return every, latest(every if everyone else every[rows_of(message.hosts, self._island)])

    def _finds_free(self, known: OrderPassage, at: int) -> bool:
        """Whether such an order, written at this time, finds each thread free."""
        if self._alone_until > at:
            for row, (read, write, last) in self._alone.items():
                if max(read, last) > at + known.arrives[row] or write > at + known.begins[row]:
                    return False
        for before, since in self._recent:
            if since + before.over > at:
                key = id(before), id(known)  # `_passages` keeps both
                apart = self._apart.get(key)
                if apart is None:
                    apart = self._apart[key] = before.head_start(known)
                if at - since < apart:
                    return False
        if self._free < 0:
            self._free = max(map(latest, (self._read, self._write, self._last)))
        if self._free <= at:
            return True
        busy = np.maximum(self._read, self._last) - known.arrives
        return latest(busy) <= at and latest(self._write - known.begins) <= at

    def _pass(self, known: OrderPassage, at: int) -> None:
        """Takes in an order that finds all threads free, and is not for all hosts."""
        for row in known.rows.intersection(self._alone) if self._alone else ():
            free = max(self._alone[row][1], at + int(known.write[row]))
            self._alone[row] = at + int(known.read[row]), free, at + int(known.last[row])
            self._alone_until = max(self._alone_until, at + known.over)
        self._recent.append((known, at))
        if len(self._recent) > RECENT:
            over = [each for each in self._recent if each[1] + each[0].over <= at]
            if not over:
                self._catch_up()
                return
            self._take_in(over)
            self._recent = [each for each in self._recent if each[1] + each[0].over > at]

    def _passage(self, key: tuple[Spans, int, int], route: CohortRoute) -> OrderPassage | None:
        """How such orders pass; None for one that comes for the first time, and is not for all hosts."""
        hosts, nbytes, steps = key
        whole = hosts == self._everyone
        if not whole and key not in self._once:
            if len(self._once) >= 4 * KEPT:
                self._once.clear()
            self._once.add(key)
            return None
        if len(self._passages) >= self._most:
            self._forget()
        times = self._read, self._write, self._last
        self._read = self._write = self._last = np.full(self._island.hosts, NEVER, dtype=np.int64)
        self._descend(route, 0, nbytes, steps, 0)
        there = rows_of(hosts, self._island)
        known = OrderPassage(self._read, self._write, self._last, route.ways, there, whole)
        self._passages[key] = known
        self._read, self._write, self._last = times
        return known

    def _forget(self) -> None:
        self._catch_up()
        self._passages.clear()
        self._apart.clear()

    def _costs_of(self, nbytes: int, steps: int) -> tuple[int, int, int]:
        """How long a host takes to write such an order once, and to read it; and how long it is under way."""
        network, profile = self._sim.network, self._sim.profile
        cost = profile.taking(nbytes) + steps * profile.relay_step
        return profile.writing(nbytes), cost, network.latency + nbytes * network.byte_ps // 1000

    def _pass_down(self, path: tuple[int, ...], at: int, nbytes: int, steps: int) -> int:
        """When the last of these hosts has read an order for it alone, which the others read and pass on."""
        write, cost, extra = self._costs(nbytes, steps)
        started, final = at, path[-1]
        read = free = 0
        for row in path:
            read, free, last = self._alone.get(row) or self._of(row)
            last = max(started + write + extra, last)
            read = max(read, last) + cost
            if row != final:
                started = max(free, read)
                free = started + write
            self._alone[row] = read, free, last
        self._alone_until = max(self._alone_until, read, free)
        return read

    def _of(self, row: int) -> LoneTimes:
        read, write, last = int(self._read[row]), int(self._write[row]), int(self._last[row])
        for known, at in self._recent:
            read = max(read, at + int(known.read[row]))
            write = max(write, at + int(known.write[row]))
            last = max(last, at + int(known.last[row]))
        return read, write, last

    def _descend(self, route: CohortRoute, at: int, nbytes: int, steps: int, number: int) -> None:
        write, cost, extra = self._costs(nbytes, steps)
        # what was returned before does not change
        self._read, self._write, self._last = self._read.copy(), self._write.copy(), self._last.copy()
        began = self._reach(route.roots, route.rank * write + (at + extra), cost, number)
        if route.ways is None:
            return
        # when each host begins to pass the order on
        started = np.zeros(self._island.hosts, dtype=np.int64)
        for level in (None, *route.levels):
            rows = route.roots if level is None else level.rows
            if level is not None:
                began = self._reach(rows, started[level.parents] + level.rank * write + extra, cost, number)
            started[rows] = np.maximum(self._write[rows], began)
            self._write[rows] = started[rows] + route.ways[rows] * write

    def _reach(self, rows: Rows, arrival: Ints, cost: int, number: int) -> Ints:
        """When these hosts have read order `number`, which would arrive at the given times."""
        jitter = self._sim.network.jitter
        if jitter:
            arrival = arrival + noise.each_below(jitter + 1, self._links[rows], number)
        self._last[rows] = arrival = np.maximum(arrival, self._last[rows])
        self._read[rows] = began = np.maximum(self._read[rows], arrival) + cost
        return began

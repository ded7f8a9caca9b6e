"""When each host of an island has read an order: as vectors, level by level down its tree.

A host reads orders one after another, and a thread of its own passes them on. An order that finds these threads free
at each host when it comes there takes as long to each as any other of its size. So that is worked out once a size, and
once for two sizes how long one must be written before the other.

Neighbours: `island` asks, for each order; `routes` has the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


class OrderPassage(NamedTuple):
    """How an order goes to all hosts that finds all threads free. By host, since it began to be written: when it has
    been read, when the thread that passes it on is free (None: nobody passes it on), and when it arrived."""

    read: TimePattern
    write: Ints | None
    last: Ints

    def head_start(self, later: OrderPassage) -> int:
        """How long before a later order this one must be written, so that the later one finds all threads free."""
        began = later.read.vector
        busy = [self.read.vector - later.last, self.last - later.last]
        if self.write is not None:
            busy.append(self.write - began)
        return max(map(latest, busy))


# The same of one host, as times: when its threads are free, and when its last order arrives.
LoneTimes = tuple[int, int, int]


class OrderTimes:
    """By host: `_read`, when its thread that reads orders is free; `_write`, the one that passes them on; `_last`, when
    the last order arrives. They lag behind `_before` and `_alone` (see `_catch_up`)."""

    def __init__(self, sim: Context, island: Island, everyone: Spans) -> None:
        self._sim, self._island, self._everyone = sim, island, everyone
        # The last order and when it was written, if it has found all threads free.
        self._before: tuple[OrderPassage, int] | None = None
        self._behind = False
        self._alone: dict[int, LoneTimes] = {}  # by row: as orders for one host have left them since
        self._free_all()
        self._passages: dict[tuple[int, int], OrderPassage] = {}  # by bytes, steps
        self._apart: dict[tuple[int, int], int] = {}  # by identities of two: `OrderPassage.head_start`

    def _free_all(self) -> None:
        self._read = np.zeros(self._island.hosts, dtype=np.int64)
        self._write, self._last = self._read.copy(), self._read.copy()

    def resume(self, read: Ints, write: Ints, last: Ints) -> None:
        """Threads are occupied until these times."""
        self._read, self._write, self._last = read, write, last
        self._before, self._behind = None, False
        self._alone.clear()

    def threads(self) -> tuple[Ints, Ints, Ints]:
        """When those that read orders and pass them on are free, and when the last order arrives."""
        self._catch_up()
        return self._read, self._write, self._last

    def _catch_up(self) -> None:
        """No vector is made for an order that finds all threads free, or that is for one host, unless somebody asks for
        them after it."""
        if self._behind and self._before is not None:
            known, at = self._before
            self._read, self._last = known.read.vector + at, known.last + at
            if known.write is not None:
                self._write = known.write + at
        self._behind = False
        if self._alone:
            self._read, self._write, self._last = self._read.copy(), self._write.copy(), self._last.copy()
            for row, (read, write, last) in self._alone.items():
                self._read[row], self._write[row], self._last[row] = read, write, last
            self._alone.clear()
            self._before = None

    def seated(self, shape: Tree) -> None:
        """Takes in another tree."""
        base, parents = self._island.base_host, shape.parents
        links = [
            link_of(parents.get(base + row, CONTROLLER), base + row) for row in range(self._island.hosts)
        ]
        self._links = noise.keys(self._sim.seed, np.array(links, dtype=np.uint64))
        self._forget()

    def send(
        self, message: m.Ordered, route: CohortRoute, at: int, nbytes: int
    ) -> tuple[HostTimes | int, int]:
        """When each host for which it is has read this order, which begins to be written then; and when all have."""
        steps = len(message.steps)
        everyone = message.hosts == self._everyone
        if not self._sim.network.jitter:
            if everyone:
                known = self._passages.get((nbytes, steps)) or self._passage(route, nbytes, steps)
                if self._finds_free(known, at):
                    self._before, self._behind = (known, at), True
                    self._alone.clear()
                    return ShiftedTimes(known.read, at), at + known.read.last
            elif route.path:
                read = self._pass_down(route.path, at, nbytes, steps)
                return read, read
        self._catch_up()
        self._before = None
        self._descend(route, at, nbytes, steps, message.number)
        every = self._read
        return every, latest(every if everyone else every[rows_of(message.hosts, self._island)])

    def _finds_free(self, known: OrderPassage, at: int) -> bool:
        """Whether such an order, written at this time, finds each thread free."""
        for row, (read, write, last) in self._alone.items():
            if max(read, last) > at + known.last[row] or write > at + known.read.vector[row]:
                return False
        if self._before is None:
            return at >= max(map(latest, (self._read, self._write, self._last)))
        before, since = self._before
        key = id(before), id(known)  # `_passages` keeps both
        apart = self._apart.get(key)
        if apart is None:
            apart = self._apart[key] = before.head_start(known)
        return at - since >= apart

    def _passage(self, route: CohortRoute, nbytes: int, steps: int) -> OrderPassage:
        times = self.threads()
        self._free_all()
        self._descend(route, 0, nbytes, steps, 0)
        if len(self._passages) >= KEPT:
            self._forget()
        passes_on = route.ways is not None
        found = OrderPassage(TimePattern(self._read), self._write if passes_on else None, self._last)
        self._passages[nbytes, steps] = found
        self._read, self._write, self._last = times
        return found

    def _forget(self) -> None:
        self._catch_up()
        self._passages.clear()
        self._apart.clear()
        self._before = None

    def _costs(self, nbytes: int, steps: int) -> tuple[int, int, int]:
        """How long a host takes to write such an order once, and to read it; and how long it is under way."""
        network, profile = self._sim.network, self._sim.profile
        cost = profile.taking(nbytes) + steps * profile.relay_step
        return profile.writing(nbytes), cost, network.latency + nbytes * network.byte_ps // 1000

    def _pass_down(self, path: tuple[int, ...], at: int, nbytes: int, steps: int) -> int:
        """When the last of these hosts has read an order for it alone, which the others read and pass on."""
        write, cost, extra = self._costs(nbytes, steps)
        started, final, read = at, path[-1], 0
        for row in path:
            read, free, last = self._alone.get(row) or self._of(row)
            last = max(started + write + extra, last)
            read = max(read, last) + cost
            if row != final:
                started = max(free, read)
                free = started + write
            self._alone[row] = read, free, last
        return read

    def _of(self, row: int) -> LoneTimes:
        write = self._write
        if not self._behind or self._before is None:
            return int(self._read[row]), int(write[row]), int(self._last[row])
        known, at = self._before
        free = int(write[row]) if known.write is None else at + int(known.write[row])
        return at + int(known.read.vector[row]), free, at + int(known.last[row])

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
            drawn = np.full(1, number, dtype=np.int64)
            arrival = arrival + noise.each_below(jitter + 1, self._links[rows], drawn)
        self._last[rows] = arrival = np.maximum(arrival, self._last[rows])
        self._read[rows] = began = np.maximum(self._read[rows], arrival) + cost
        return began

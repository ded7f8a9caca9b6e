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


class OrderTimes:
    """By host: `_read`, when its thread that reads orders is free; `_write`, the one that passes them on; `_last`, when
    the last order arrives. They lag behind `_before` (see `_catch_up`)."""

    def __init__(self, sim: Context, island: Island, everyone: Spans) -> None:
        self._sim, self._island, self._everyone = sim, island, everyone
        # The last order and when it was written, if it has found all threads free.
        self._before: tuple[OrderPassage, int] | None = None
        self._behind = False
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

    def threads(self) -> tuple[Ints, Ints, Ints]:
        """When those that read orders and pass them on are free, and when the last order arrives."""
        self._catch_up()
        return self._read, self._write, self._last

    def _catch_up(self) -> None:
        """No vector is made for an order that finds all threads free, unless somebody asks for them after it."""
        if self._behind and self._before is not None:
            known, at = self._before
            self._read, self._last = known.read.vector + at, known.last + at
            if known.write is not None:
                self._write = known.write + at
        self._behind = False

    def seated(self, shape: Tree) -> None:
        """Takes in another tree."""
        base, parents = self._island.base_host, shape.parents
        links = [
            link_of(parents.get(base + row, CONTROLLER), base + row) for row in range(self._island.hosts)
        ]
        self._links = noise.keys(self._sim.seed, np.array(links, dtype=np.uint64))
        self._forget()

    def send(self, message: m.Ordered, route: CohortRoute, at: int, nbytes: int) -> tuple[HostTimes, int]:
        """When each host has read this order, which begins to be written then; and when all have for which it is."""
        steps = len(message.steps)
        everyone = message.hosts == self._everyone
        if everyone and not self._sim.network.jitter:
            known = self._passages.get((nbytes, steps)) or self._passage(route, nbytes, steps)
            if self._finds_free(known, at):
                self._before, self._behind = (known, at), True
                return ShiftedTimes(known.read, at), at + known.read.last
        self._catch_up()
        self._before = None
        self._descend(route, at, nbytes, steps, message.number)
        read = self._read
        return read, latest(read if everyone else read[rows_of(message.hosts, self._island)])

    def _finds_free(self, known: OrderPassage, at: int) -> bool:
        """Whether such an order, written at this time, finds each thread free."""
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

    def _descend(self, route: CohortRoute, at: int, nbytes: int, steps: int, number: int) -> None:
        network, profile = self._sim.network, self._sim.profile
        write = profile.writing(nbytes)
        cost = profile.taking(nbytes) + steps * profile.relay_step
        extra = network.latency + nbytes * network.byte_ps // 1000
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

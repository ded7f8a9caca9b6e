"""Gangs on an island's devices: when each host's have come to it, when it starts, when it ends.

A device runs what was enqueued on it in that order, so a gang's turn comes at a host when the gang has been
enqueued there and the last one before it on these devices has ended. The end of a gang is known when it
starts; so the start of the next one is known early, and a gang takes two events whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core import spans
from core.place import Place, device_spans
from core.plan import Gang, Plan
from core.spans import Spans
from core.topology import Island
from core.trace import PLACEHOLDER

from ..clock import LATE
from ..noise import Ints
from .routes import Rows, rows_of

if TYPE_CHECKING:
    from ..simulation import Simulation


class Where:
    """A place, as indices."""

    __slots__ = ("columns", "devices", "hosts", "number", "rows", "whole")

    def __init__(self, place: Place, island: Island) -> None:
        self.devices = device_spans(place)
        self.hosts = island.hosts_of(place)
        self.rows = rows_of(self.hosts, island)
        self.number = spans.count(self.hosts)
        self.whole = spans.count(self.devices) == self.number * island.per_host
        self.columns: list[
            NDArray[np.intp]
        ] = []  # not whole: by device within a host, which of `rows` have it
        if not self.whole:
            grid = np.zeros(island.devices, dtype=bool)
            for low, high in self.devices:
                grid[low - island.base_device : high - island.base_device] = True
            table = grid.reshape(island.hosts, island.per_host)[self.rows]
            self.columns = [np.flatnonzero(table[:, column]) for column in range(island.per_host)]


class Job:
    __slots__ = (
        "arrived", "before", "behind", "ends", "flags", "gang", "heard", "missing", "plan", "ready", "seq", "where",
    )  # fmt: skip

    def __init__(self, seq: int, plan: Plan, gang: Gang, where: Where) -> None:
        self.seq, self.plan, self.gang, self.where = seq, plan, gang, where
        self.missing = where.number  # hosts that have not enqueued it
        self.ready: Ints = np.zeros(where.number, dtype=np.int64)  # when each had
        self.arrived: Ints = self.ready  # when its turn had come at each
        self.before = 0  # gangs ahead of it whose ends are not known
        self.behind: list[Job] = []
        self.ends: Ints | int = 0
        self.flags = 0
        self.heard: dict[int, int] = {}  # no collective: hosts that have heard of its end, and when


class Gangs:
    """`over(job)`: it has ended, on all its hosts or on the first of them; `job.ends` says when on each.
    `over_at(job, row, last)`: it has ended on one host, or on the last of them."""

    def __init__(
        self,
        sim: Simulation,
        island: Island,
        over: Callable[[Job], None],
        over_at: Callable[[Job, int, bool], None],
    ) -> None:
        self._sim, self._island, self._over, self._over_at = sim, island, over, over_at
        self._free = np.zeros(
            island.hosts, dtype=np.int64
        )  # the devices of each host; while all places are whole
        self._each: Ints | None = None  # by device within a host, and host: once one was not
        self._live: dict[int, Job] = {}  # in order: those whose ends are not known
        self._places: dict[Place, Where] = {}
        self._overlaps: dict[tuple[int, int], bool] = {}
        self._timed: dict[int, Job] = {}  # whose ends are known, and that have not ended
        self._ending: list[Job] = []
        self.slow: NDArray[np.float64] | None = None

    def where(self, place: Place) -> Where:
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = Where(place, self._island)
            if not found.whole and self._each is None:
                self._each = np.repeat(self._free[np.newaxis, :], self._island.per_host, axis=0)
        return found

    def enter(self, seq: int, plan: Plan, gang: Gang) -> Job:
        """It is in the island's order: behind all that entered before and shares a device with it."""
        job = Job(seq, plan, gang, self.where(gang.place))
        for other in self._live.values():
            if self._overlap(other.where, job.where):
                other.behind.append(job)
                job.before += 1
        self._live[seq] = job
        return job

    def _overlap(self, one: Where, other: Where) -> bool:
        if one is other:
            return True
        key = (id(one), id(other))  # places are kept
        found = self._overlaps.get(key)
        if found is None:
            found = self._overlaps[key] = spans.overlap(one.devices, other.devices)
        return found

    def enqueued(self, job: Job, at: Rows, number: int, ready: Ints, placeholders: bool) -> None:
        """These hosts (counted among the job's) have, or will have, enqueued it."""
        job.ready[at] = ready
        job.missing -= number
        if placeholders:
            job.flags |= PLACEHOLDER
        if not job.missing and not job.before:
            self._turn(job)

    def _turn(self, job: Job) -> None:
        """All hosts have it, and all ends before it are known."""
        where = job.where
        job.arrived = np.maximum(job.ready, self._free_at(where))
        first = int(job.arrived.max()) if job.gang.collective else int(job.arrived.min())
        self._sim.clock.at(first, self._start, job)

    def _free_at(self, where: Where) -> Ints:
        if self._each is None:
            return self._free[where.rows]
        if where.whole:
            return self._each[:, where.rows].max(axis=0)  # type: ignore[no-any-return]
        free = np.zeros(where.number, dtype=np.int64)
        rows = np.arange(self._island.hosts)[where.rows]
        for column, at in enumerate(where.columns):
            free[at] = np.maximum(free[at], self._each[column, rows[at]])
        return free

    def _start(self, job: Job) -> None:
        sim, where, now = self._sim, job.where, self._sim.now
        took = sim.price(job.plan, job.gang, job.seq)
        if job.gang.collective:
            if self.slow is not None:
                slow = float(self.slow[where.rows].max())
                took = took if slow == 1.0 else int(took * slow)
            job.ends = end = now + took
            sim.trace.hosts(job.seq, job.arrived)
            sim.trace.update(job.seq, job.flags, started=now, skew=now - int(job.arrived.min()))
        else:
            each: Ints | int = took
            if self.slow is not None:
                slows = self.slow[where.rows]
                each = np.where(slows == 1.0, took, (took * slows).astype(np.int64))
            job.ends = job.arrived + each
            end = int(job.ends.min())
            sim.trace.update(job.seq, job.flags, started=now)
        self._occupy(where, job.ends)
        if job.gang.collective or self._each is None:
            self._timed[job.seq] = job
            sim.clock.at(end, self._end, job)
        else:
            self._one_by_one(job)
        del self._live[job.seq]
        behind, job.behind = job.behind, []
        for other in behind:
            other.before -= 1
            if not other.missing and not other.before:
                self._turn(other)

    def _occupy(self, where: Where, until: Ints | int) -> None:
        if self._each is None:
            self._free[where.rows] = until
        elif where.whole:
            self._each[:, where.rows] = until
        else:
            rows = np.arange(self._island.hosts)[where.rows]
            for column, at in enumerate(where.columns):
                self._each[column, rows[at]] = until if isinstance(until, int) else until[at]

    def _end(self, job: Job) -> None:
        """What ends at the same nanosecond ends in the order of its seqs."""
        if not self._ending:
            self._sim.clock.at(self._sim.now, self._all_ended, priority=LATE)
        self._ending.append(job)

    def _all_ended(self) -> None:
        ending, self._ending = sorted(self._ending, key=_seq), []
        for job in ending:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        """Those ahead of it on some host end there first, though the first of their own hosts may be later."""
        if job.seq not in self._timed:
            return
        for other in sorted(self._timed.values(), key=_seq):
            if other.seq >= job.seq:
                break
            ahead = self._each is None or not other.gang.collective  # else its own end comes in its own time
            if ahead and spans.overlap(other.where.hosts, job.where.hosts):
                self._finish(other)
        del self._timed[job.seq]
        self._traced(job)
        self._over(job)

    def _traced(self, job: Job) -> None:
        trace = self._sim.trace
        if not job.gang.collective:
            trace.hosts(job.seq, job.arrived)
        if isinstance(job.ends, int):
            trace.update(job.seq, ended=job.ends)
        else:
            trace.ends(job.seq, job.ends)

    def _one_by_one(self, job: Job) -> None:
        """Each host ends its own; and other gangs may end there meanwhile, on other devices."""
        assert not isinstance(job.ends, int)
        job.missing = job.where.number
        rows = np.arange(self._island.hosts)[job.where.rows]
        for row, end in zip(rows.tolist(), job.ends.tolist(), strict=True):
            self._sim.clock.at(end, self._one_ended, job, row, priority=LATE)

    def _one_ended(self, job: Job, row: int) -> None:
        job.missing -= 1
        if not job.missing:
            self._traced(job)
        self._over_at(job, row, not job.missing)

    def hosts_before(self, hosts: Spans, job: Job) -> Rows:
        """Where these hosts stand among the job's own."""
        if hosts == job.where.hosts:
            return slice(0, job.where.number)
        mine = np.arange(self._island.hosts)[job.where.rows]
        wanted = np.arange(self._island.hosts)[rows_of(hosts, self._island)]
        return np.searchsorted(mine, wanted)


def _seq(job: Job) -> int:
    return job.seq

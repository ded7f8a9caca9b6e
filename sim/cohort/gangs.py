"""Gangs on an island's devices: when each host has enqueued one, when it starts, and when it ends.

A device runs what was enqueued on it in that order. So a gang's turn comes at a host when the gang has been
enqueued there and the gang before it on these devices has ended. The end of a gang is known when it starts.
So the start of the next one is known early, and a gang takes two events, however many hosts it has. A gang of several
steps may be cut while it runs: its end is known when it comes, and only then does the start of the next one follow.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.model import Gang, GangSteps, Island, Place, Plan, Spans, device_spans, spans
from core.record import PLACEHOLDER

from ..engine import LATE, Ints
from ..engine import jitter as noise
from .host_times import HostTimes, TimePatterns, as_vector, earliest, latest
from .routes import Rows, indices_of, rows_of

if TYPE_CHECKING:
    from ..hosts import Context


NONE: Ints = np.zeros(0, dtype=np.int64)  # times that are not known yet


class PlaceIndices:
    """A place, as indices into the island's vectors."""

    __slots__ = ("cells", "devices", "firsts", "hosts", "number", "rows", "whole")

    def __init__(self, devices: Spans, hosts: Spans, island: Island) -> None:
        self.devices, self.hosts = devices, hosts
        self.rows = rows_of(self.hosts, island)
        self.number = spans.count(self.hosts)
        self.whole = spans.count(self.devices) == self.number * island.devices_per_host
        # Its devices in a vector of the island's, and where each host's begin among them.
        self.cells = indices_of(self.devices, island.base_device)
        hosts_of = np.arange(island.devices)[self.cells] // island.devices_per_host
        self.firsts = np.flatnonzero(np.concatenate(([True], hosts_of[1:] != hosts_of[:-1])))

    def for_devices(self, times: Ints | int) -> Ints | int:
        """By device, times of its hosts."""
        if isinstance(times, int):
            return times
        return np.repeat(times, np.diff(self.firsts, append=spans.count(self.devices)))


class CohortSoloGang(msgspec.Struct, eq=False):
    """A gang that is no collective: each of its hosts runs it by itself, as a job of its own."""

    where: PlaceIndices
    jobs: dict[int, CohortGang] = {}  # by row: the host's number in the island
    arrived: dict[int, int] = {}
    ended: dict[int, int] = {}
    heard: dict[int, int] = {}  # by host: when its completion thread took in the end
    told: dict[int, None] = {}  # hosts whose executor knows that it is over
    slow: NDArray[np.float64] | None = None  # as it was when the first job started


class CohortGang(msgspec.Struct, eq=False):
    seq: int
    plan: Plan
    gang: Gang
    where: PlaceIndices
    missing: int  # hosts that have not enqueued it
    ready: HostTimes | int = NONE  # when each host had enqueued it; a number only if it has one host
    arrived: HostTimes | int = NONE  # when its turn had come at each host; likewise
    before: int = 0  # gangs ahead of it whose ends are not known
    behind: list[CohortGang] = []
    ends: Ints | int = 0
    flags: int = 0
    alone: CohortSoloGang | None = None  # the gang of which this is one host's job
    steps: GangSteps | None = None  # if it has several; its hosts then run it together


class Gangs:
    """Runs gangs. `over(job)`: a gang has ended on all its hosts, or on the first of them; `job.ends` says when on
    each. `over_at(job, row)`: a gang has ended on this host, which ran it by itself."""

    def __init__(
        self,
        sim: Context,
        island: Island,
        patterns: TimePatterns,
        over: Callable[[CohortGang], None],
        over_at: Callable[[CohortGang, int], None],
    ) -> None:
        self._sim, self._island, self._over, self._over_at = sim, island, over, over_at
        self._patterns = patterns
        self.differ_later = False  # hosts will be simulated one by one
        # when the devices of each host are free; a number if it is the same for all; used while all places are whole
        self._free: Ints | int = 0
        # the same by device; used once a place was not whole
        self._each: Ints | None = None
        self._live: dict[tuple[int, Spans], CohortGang] = {}  # jobs whose ends are not known, in order
        self._shares: dict[tuple[PlaceIndices, int], PlaceIndices] = {}
        self._places: dict[Place, PlaceIndices] = {}
        self._overlaps: dict[tuple[int, int], bool] = {}
        self.ending: list[CohortGang] = []
        self.alone: dict[int, CohortSoloGang] = {}  # by `seq`: those that have not ended on all their hosts
        self.slow: NDArray[np.float64] | None = None
        self._sources = noise.keys(sim.seed, noise.COMPUTE + island.base_host + np.arange(island.hosts))

    def where(self, place: Place) -> PlaceIndices:
        found = self._places.get(place)
        if found is None:
            found = PlaceIndices(device_spans(place), self._island.hosts_of(place), self._island)
            self._places[place] = self._seen(found)
        return found

    def in_step(self, place: Place) -> bool:
        """Whether a gang here that is no collective can be one job, if its hosts are told of it together. If it has one
        host, it can.

        All gangs so far, and this one, take all devices of each of their hosts. And no gang that hosts run one by one
        is under way on these hosts: one host can end it before another has started it. Then this gang would start
        on the first host before its turn on the other is known, and end there before the other has ended that one."""
        where = self.where(place)
        if where.number == 1:
            return True
        if not where.whole or self._each is not None:
            return False
        of_one = [job.where for job in self._live.values() if job.where.number == 1]
        of_one += [alone.where for alone in self.alone.values()]
        return not any(self._overlap(other, where) for other in of_one)

    def divide(self, hosts: Spans) -> tuple[Spans, dict[int, CohortSoloGang]]:
        """These hosts are told something before others are. So gangs of both, that are no collective, and of which it
        is not known when all hosts start them, are run by each host from now on. Returns the hosts that run such gangs,
        and these, by `seq`."""
        divided: dict[int, CohortSoloGang] = {}
        apart = spans.EMPTY
        while True:
            found = [
                job for job in self._live.values()
                if job.alone is None and not job.gang.collective and job.where.number > 1
                and (job.missing or job.before)
                and (
                    spans.overlap(job.where.hosts, apart)
                    or (spans.overlap(job.where.hosts, hosts) and not spans.within(job.where.hosts, hosts))
                )
            ]  # fmt: skip
            if not found:
                return apart, divided
            apart = spans.union(apart, *(job.where.hosts for job in found))
            for job in found:
                divided[job.seq] = self._divide(job)

    def _divide(self, job: CohortGang) -> CohortSoloGang:
        """Makes a gang that no host has started the jobs of single hosts, in its place in the order."""
        live, self._live = self._live, {}
        alone: CohortSoloGang | None = None
        for key, other in live.items():
            if other is job:
                alone = self.enter_alone(job.seq, job.plan, job.gang)
            else:
                self._live[key] = other
        assert alone is not None
        for other in live.values():
            if job in other.behind:
                other.behind.remove(job)
        mine = list(alone.jobs.values())
        for each in mine:
            each.flags = job.flags
        for other in job.behind:
            other.before -= 1
            for each in mine:
                if self._overlap(each.where, other.where):
                    each.behind.append(other)
                    other.before += 1
        if job.ready is not NONE:
            assert not job.missing
            for each, ready in zip(mine, as_vector(job.ready, len(mine)), strict=True):
                each.ready, each.missing = np.array([ready], dtype=np.int64), 0
                if not each.before:
                    self._turn(each)
        return alone

    @property
    def run_alone(self) -> Spans:
        """The hosts that run gangs one by one, which have not ended on all of them."""
        return spans.union(*(alone.where.hosts for alone in self.alone.values()))

    def waits(self, job: CohortGang) -> bool:
        """Whether it has not started."""
        return self._is_live(job) and (job.steps is None or job.steps.begun < 0)

    def _is_live(self, job: CohortGang) -> bool:
        return (job.seq, job.where.hosts) in self._live

    def _seen(self, where: PlaceIndices) -> PlaceIndices:
        if not where.whole and self._each is None:
            self._each = np.repeat(self._free_each(), self._island.devices_per_host)
        return where

    def enter(self, seq: int, plan: Plan, gang: Gang) -> CohortGang:
        """Adds a gang to the island's order, behind all gangs that share a device with it."""
        where = self.where(gang.place)
        job = CohortGang(seq, plan, gang, where, where.number)
        if gang.steps > 1:
            job.steps = GangSteps(gang.steps)
        return self._enter(job)

    def enter_alone(self, seq: int, plan: Plan, gang: Gang) -> CohortSoloGang:
        """Adds a gang that is no collective: each of its hosts runs it when it can."""
        island, where = self._island, self.where(gang.place)
        alone = self.alone[seq] = CohortSoloGang(where)
        for row in np.arange(island.hosts)[where.rows].tolist():
            key = (where, row)
            here = self._shares.get(key)
            if here is None:
                host = spans.one(island.base_host + row)
                mine = spans.meet(where.devices, island.devices_of(island.base_host + row))
                here = self._shares[key] = self._seen(PlaceIndices(mine, host, island))
            job = alone.jobs[row] = self._enter(CohortGang(seq, plan, gang, here, here.number))
            job.alone = alone
        return alone

    def resume(self, job: CohortGang, arrived: Ints, ends: Ints | int) -> None:
        """A gang that has just been added has started already: its turn had come at these times, and it ends then."""
        assert not job.before
        job.missing, job.ready, job.arrived, job.ends = 0, arrived, arrived, ends
        if job.alone is not None:
            job.alone.arrived[job.where.rows.start] = int(arrived[0])  # type: ignore[union-attr]  # one host is a slice
        if job.steps is None:
            self._end_known(job)
        self._sim.clock.at(earliest(ends), self._end, job)

    def _enter(self, job: CohortGang) -> CohortGang:
        for other in self._live.values():
            if other.where is job.where or self._overlap(other.where, job.where):
                other.behind.append(job)
                job.before += 1
        self._live[job.seq, job.where.hosts] = job
        return job

    def _overlap(self, one: PlaceIndices, other: PlaceIndices) -> bool:
        key = (id(one), id(other))  # identities are stable: `_places` and `_shares` keep them
        found = self._overlaps.get(key)
        if found is None:
            found = self._overlaps[key] = spans.overlap(one.devices, other.devices)
        return found

    def enqueued(self, job: CohortGang, at: Rows, number: int, ready: HostTimes | int, placeholders: bool) -> None:
        """Takes in when these hosts (indices among the job's hosts) enqueue the gang, in the past or in the
        future; a number is one host's."""
        if number == job.where.number:
            job.ready = ready
        else:
            each = np.zeros(job.where.number, dtype=np.int64) if job.ready is NONE else as_vector(job.ready)
            each[at] = as_vector(ready, number)
            job.ready = each
        job.missing -= number
        if placeholders:
            job.flags |= PLACEHOLDER
        if not job.missing and not job.before:
            self._turn(job)

    def _turn(self, job: CohortGang) -> None:
        """Schedules the start: all hosts have enqueued the gang, and all ends before it are known."""
        where = job.where
        job.arrived = arrived = self._patterns.later(job.ready, self._free_at(where))
        start = latest(arrived) if job.gang.collective else earliest(arrived)
        assert start >= self._sim.now, f"gang {job.seq} starts before its turn is known"
        self._sim.clock.at(start, self._start, job)

    def _free_each(self) -> Ints:
        if isinstance(self._free, int):
            self._free = np.full(self._island.hosts, self._free, dtype=np.int64)
        return self._free

    def _free_at(self, where: PlaceIndices) -> Ints | int:
        if self._each is None:
            return self._free if isinstance(self._free, int) else self._free[where.rows]
        if where.number == 1:
            return latest(self._each[where.cells])
        last: Ints = np.maximum.reduceat(self._each[where.cells], where.firsts)
        return last

    def _start(self, job: CohortGang) -> None:
        sim, where, now = self._sim, job.where, self._sim.now
        takes = sim.prices(job.plan, job.gang)
        slows = self._slows(job, self.slow) if job.alone is None else None
        if slows is not None and job.gang.collective and (slow := float(slows.max())) != 1.0:
            takes = takes.slowed(slow)
        took = takes.own + takes.links
        if job.gang.collective:
            if takes.roads is not None and job.steps is None:
                took += sim.contents.roads.collectives.wait(job.seq, job.gang.place, now + takes.own, takes.roads)
            job.ends = end = now + (took if job.steps is None else job.steps.begin(now, took))
            arrived = job.arrived
            sim.trace.started(job.seq, [arrived] if isinstance(arrived, int) else arrived, now, job.flags)
        elif job.alone is not None:
            job.ends = end = now + self._took_alone(job, job.alone, took)
        else:
            each: Ints | int = took
            if slows is not None:
                each = np.where(slows == 1.0, took, (took * slows).astype(np.int64))
            job.arrived = as_vector(job.arrived, where.number)
            job.ends = job.arrived + (each if job.steps is None else job.steps.begin(now, latest(each)))
            end = int(job.ends.min())
            sim.trace.update(job.seq, job.flags, started=now)
        if job.steps is None:
            self._end_known(job)
        sim.clock.at(end, self._end, job)

    def cut(self, job: CohortGang) -> None:
        """The word has come to a device of the gang to end it with the step under way. It may be over."""
        steps = job.steps
        if steps is not None and self._is_live(job):
            steps.cut(self._sim.now)
            if steps.begun >= 0 and steps.ends < earliest(job.ends):
                job.ends = job.ends - (earliest(job.ends) - steps.ends)
                self._sim.clock.at(steps.ends, self._end, job)

    def _end_known(self, job: CohortGang) -> None:
        """It has started, and will not be cut any more: gangs behind it know when their turn comes."""
        del self._live[job.seq, job.where.hosts]
        self._occupy(job.where, job.ends)
        behind, job.behind = job.behind, []
        for other in behind:
            other.before -= 1
            if not other.missing and not other.before:
                self._turn(other)

    def _took_alone(self, job: CohortGang, alone: CohortSoloGang, took: int) -> int:
        now, row = self._sim.now, job.where.rows.start  # type: ignore[union-attr]  # one host is a slice
        if not alone.arrived:
            alone.slow = None if self.slow is None else self.slow.copy()
            self._sim.trace.update(job.seq, job.flags, started=now)
        alone.arrived[row] = earliest(job.arrived)
        slows = self._slows(job, alone.slow)
        slow = 1.0 if slows is None else float(slows[0])
        return took if slow == 1.0 else int(took * slow)

    def _slows(self, job: CohortGang, slow: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """By host of the gang: the factor by which its devices take longer. None: none does."""
        most, rows = self._sim.noise.compute, job.where.rows
        if not most:
            return None if slow is None else slow[rows]
        longer = 1.0 + most * noise.fractions(self._sources[rows], job.seq)
        return longer if slow is None else slow[rows] * longer

    def _occupy(self, where: PlaceIndices, until: Ints | int) -> None:
        if self._each is None:
            if isinstance(until, int) and where.number == self._island.hosts:
                self._free = until
            else:
                self._free_each()[where.rows] = until
        else:
            self._each[where.cells] = where.for_devices(until)

    def _end(self, job: CohortGang) -> None:
        """Collects what ends at the same nanosecond, to end it in the order of `seq`."""
        if job.steps is not None:
            if not self._is_live(job):
                return  # it was cut, and is over
            self._end_known(job)
        if not self.ending:
            self._sim.clock.at(self._sim.now, self._all_ended, priority=LATE)
        self.ending.append(job)

    def _all_ended(self) -> None:
        ending, self.ending = self.ending, []
        if len(ending) > 1:
            ending.sort(key=attrgetter("seq"))
        for job in ending:
            if job.alone is None:
                self._traced(job)
                self._over(job)
            else:
                self._one_ended(job, job.alone)

    def _traced(self, job: CohortGang) -> None:
        trace = self._sim.trace
        if not job.gang.collective and not isinstance(job.ends, int) and self.differ_later:
            last = int(job.ends.max())
            if last > self._sim.now:  # by then, hosts may differ
                self._sim.clock.at(last, self._traced, job)
                return
        if not job.gang.collective:
            trace.hosts(job.seq, as_vector(job.arrived, job.where.number))
        if isinstance(job.ends, int):
            trace.update(job.seq, ended=job.ends)
        else:
            trace.ends(job.seq, job.ends)

    def _one_ended(self, job: CohortGang, alone: CohortSoloGang) -> None:
        row = job.where.rows.start  # type: ignore[union-attr]
        alone.ended[row] = self._sim.now
        if len(alone.ended) == alone.where.number:
            del self.alone[job.seq]
            rows = sorted(alone.ended)
            self._sim.trace.hosts(job.seq, [alone.arrived[row] for row in rows])
            self._sim.trace.ends(job.seq, [alone.ended[row] for row in rows])
        self._over_at(job, row)

    def hosts_before(self, hosts: Spans, job: CohortGang) -> Rows:
        """The indices of these hosts among the job's hosts."""
        mine = np.arange(self._island.hosts)[job.where.rows]
        wanted = np.arange(self._island.hosts)[rows_of(hosts, self._island)]
        return np.searchsorted(mine, wanted)

"""Reports on their way up the tree: each relay waits for all hosts below it that take part.

The hosts of one report may make it at times that become known one after another, as when contents reach them. What
is known is worked out at once, as vectors, level by level. A root's report reaches the controller when all hosts below
it have reported. The controller acts on the last root's report, which speaks for all hosts that report the same; those
before it only take its time. Reports that differ between hosts, as blames do, are sent for each root by themselves.

Mostly all hosts of a report make it at times that are known together (`at_once`), and in a pattern that came before
(`in_pattern`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from core.fanout import Reduction
from core.model import Spans, spans
from core.protocol import messages as m

from ..engine import Ints, Wave
from ..network import about, report_number
from .host_times import ShiftedTimes, TimePattern
from .routes import CohortRoute, Rows, rows_of

if TYPE_CHECKING:
    from .island import CohortIsland

NOBODY: Ints = np.zeros(0, dtype=np.int64)
KEPT = 1024  # waves of reports that are remembered: one for each slice, mostly
Key = tuple[type, int]
RootWave = tuple[Wave | None, int, int]
# (time, root): reports that come at one time are taken in the order of their senders
Arrival = tuple[int, int]


class Climb(msgspec.Struct, eq=False):
    """One report."""

    hosts: Spans
    left: Ints  # by row: how many hosts at it and below it are still awaited
    at: Ints  # by row: when the last of them has been heard of there
    missing: int
    quiet: Any = None  # what most hosts report
    loud: dict[int, list[Any]] = {}  # by root: what differs between hosts
    last: Arrival = (-1, -1)  # of the quiet roots that are known
    told: bool = False  # the controller has been told what most hosts report


class Climbs:
    def __init__(self, island: CohortIsland) -> None:
        self._island = island
        self._under_way: dict[Key, Climb] = {}
        self._awaited = lru_cache(maxsize=KEPT)(self._awaited_below)  # of the tree that there is
        self._wave_in = lru_cache(maxsize=KEPT)(self._wave_in_pattern)

    # --- all hosts at once --------------------------------------------------------------------------------------

    def seated(self) -> None:
        """Takes in another tree."""
        self._awaited.cache_clear()
        self._wave_in.cache_clear()

    def at_once(self, rows: Rows, times: Ints | int, said: tuple[Any, ...], hosts: Spans) -> None:
        """All these hosts, and no others, make the reports at these times."""
        island, number = self._island, report_number(said[0])
        route = island.tree.route(hosts)
        arrival = self._arrivals(route, rows, times, number)
        if any(map(is_loud, said)):
            self._each_root(route, arrival, said)
        else:
            first = int(arrival.min())
            island.reports.from_roots(first, self._wave(route, arrival - first), said, number)

    def in_pattern(self, when: ShiftedTimes, said: tuple[Any, ...], hosts: Spans) -> None:
        """The same, where nothing is drawn at random, and nothing is loud. These are all hosts of the island, or all of
        them do it at one time."""
        self._island.reports.from_roots(when.at, self._wave_in(hosts, when.pattern), said, report_number(said[0]))

    def _wave_in_pattern(self, hosts: Spans, pattern: TimePattern) -> RootWave:
        route = self._island.tree.route(hosts)
        return self._wave(route, self._arrivals(route, slice(0, self._island.island.hosts), pattern.vector, 0))

    def _arrivals(self, route: CohortRoute, rows: Rows, times: Ints | int, number: int) -> Ints:
        """When the controller has each root's report, if these hosts make theirs at these times."""
        island = self._island
        extra, subject = island.report_extra, about(number)
        at: Ints = np.zeros(island.island.hosts, dtype=np.int64)
        at[rows] = times
        for level in reversed(route.levels):
            late = island.jitter_up(level.rows, subject)
            arrival = at[level.rows] + (extra + island.report_take) + late
            last = np.maximum.reduceat(arrival, level.firsts)
            at[level.heads] = np.maximum(at[level.heads], last)
        return at[route.roots] + extra + island.jitter_up(route.roots, subject)

    def _wave(self, route: CohortRoute, arrival: Ints) -> RootWave:
        """All of these arrivals but the last, and the time and the sender of that one."""
        order = np.argsort(arrival, kind="stable")
        arrival, senders = arrival[order], route.root_hosts[order]
        early = Wave(arrival[:-1], senders[:-1], self._island.report_take) if route.number > 1 else None
        return early, int(arrival[-1]), int(senders[-1])

    def _each_root(self, route: CohortRoute, arrival: Ints, said: tuple[m.Done, ...]) -> None:
        """Sends each root's reports by themselves: the controller acts on the first report of a failure, and each
        root reports every blame of the hosts below it."""
        island, sim = self._island, self._island.sim
        for root, at in zip(route.root_hosts.tolist(), arrival.tolist(), strict=True):
            for report in merged(said, island.shape.below(root)):
                sim.network.messages += 1
                sim.clock.at(at, island.reports.reach, root, (report,))

    # --- some after others --------------------------------------------------------------------------------------

    def report(self, report: Any, rows: Rows, times: Ints, hosts: Spans) -> None:
        """Takes in a report that these hosts make at these times; `hosts` take part."""
        key, island = report_about(report), self._island
        climb = self._under_way.get(key)
        if climb is None:
            left = self._awaited(hosts).copy()
            climb = self._under_way[key] = Climb(hosts, left, np.zeros_like(left), spans.count(hosts))
        if is_loud(report):
            for row in np.arange(island.island.hosts)[rows].tolist():
                one = replace(report, hosts=spans.one(island.island.base_host + row))
                climb.loud.setdefault(island.tree.root(row), []).append(one)
        elif climb.quiet is None:
            climb.quiet = report
        climb.missing -= len(times)
        subject = about(report_number(report))
        if len(times) == 1:
            (row,) = np.arange(island.island.hosts)[rows].tolist()
            found = self._advance_one(climb, row, int(times[0]), subject)
        else:
            found = self._advance(climb, rows, times, subject)
        if len(found[0]):
            self._deliver(climb, report, *found)
        if not climb.missing:
            del self._under_way[key]

    def of_one(self, report: Any, row: int, time: int) -> None:
        """Takes in a report that only this host makes, and no other takes part in: each relay passes it on at once."""
        island, number = self._island, report_number(report)
        extra, jitters = island.report_extra, bool(island.sim.network.jitter)
        while True:
            time += extra
            if jitters:
                time += int(np.max(island.jitter_up(np.array([row]), about(number))))
            parent = island.tree.parent(row)
            if parent < 0:
                break
            row, time = parent, time + island.report_take
        island.sim.network.messages += 1
        island.sim.clock.at(time, island.reports.take_in, row + island.island.base_host, number, report)

    def _awaited_below(self, hosts: Spans) -> Ints:
        """By row: how many of these hosts are at it and below it."""
        island = self._island
        found: Ints = np.zeros(island.island.hosts, dtype=np.int64)
        found[rows_of(hosts, island.island)] = 1
        for level in reversed(island.tree.route(hosts).levels):
            np.add.at(found, level.parents, found[level.rows])
        return found

    def _advance(self, climb: Climb, rows: Rows, times: Ints, subject: int) -> tuple[NDArray[np.intp], Ints]:
        """Passes on what these hosts report, as far as all hosts below are known. Returns roots from which nothing
        is missing now, and when their reports reach the controller."""
        island, at, left = self._island, climb.at, climb.left
        at[rows] = np.maximum(at[rows], times)
        left[rows] -= 1
        here = np.arange(island.island.hosts)[rows]
        here = here[left[here] == 0]
        whole = self._awaited(climb.hosts)
        roots: list[NDArray[np.intp]] = []
        while len(here):
            parents = island.tree.parents(here)
            top = parents < 0
            roots.append(here[top])
            here, parents = here[~top], parents[~top]
            if not len(here):
                break
            took = island.report_extra + island.report_take + island.jitter_up(here, subject)
            np.maximum.at(at, parents, at[here] + took)
            np.subtract.at(left, parents, whole[here])
            parents = np.unique(parents)
            here = parents[left[parents] == 0]
        found = np.concatenate(roots) if roots else here
        return found, at[found] + island.report_extra + island.jitter_up(found, subject)

    def _advance_one(self, climb: Climb, row: int, time: int, subject: int) -> tuple[Ints, Ints]:
        """The same for one host, which is often the only one of which something new is known."""
        island, at, left = self._island, climb.at, climb.left
        whole, number = self._awaited(climb.hosts), 1
        while True:
            at[row] = time = max(time, int(at[row]))
            left[row] -= number
            if left[row]:
                return NOBODY, NOBODY
            here = np.array([row])
            time += island.report_extra + int(np.max(island.jitter_up(here, subject)))
            parent = island.tree.parent(row)
            if parent < 0:
                return here, np.array([time])
            row, time, number = parent, time + island.report_take, int(whole[row])

    def _deliver(self, climb: Climb, report: Any, roots: NDArray[np.intp], arrivals: Ints) -> None:
        """Sends the reports of these roots. All but the last of the quiet ones only take the controller's time."""
        island, sim = self._island, self._island.sim
        senders = roots + island.island.base_host
        if climb.loud:
            loud = np.array([row in climb.loud for row in roots.tolist()])
            for row, sender, at in zip(roots[loud], senders[loud], arrivals[loud], strict=True):
                said = self._of_root(climb, int(row))
                sim.network.messages += len(said)
                sim.clock.at(int(at), self._come_loud, climb, int(sender), said)
            senders, arrivals = senders[~loud], arrivals[~loud]
        if not len(senders):
            return
        if len(senders) > 1:
            order = np.lexsort((senders, arrivals))
            senders, arrivals = senders[order], arrivals[order]
        number, last = report_number(report), (int(arrivals[-1]), int(senders[-1]))
        climb.last = max(climb.last, last)
        sim.network.messages += len(senders)
        sim.controller_process.lane.absorb(arrivals[:-1], senders[:-1], island.report_take, number)
        sim.clock.at(last[0], self._come, climb, last, number)

    def _come(self, climb: Climb, arrival: Arrival, number: int) -> None:
        """The report of a root reaches the controller, and is perhaps the last one."""
        last = not climb.missing and not climb.told and arrival == climb.last
        said = self._most(climb) if last else None
        self._island.reports.take_in(arrival[1], number, said)

    def _come_loud(self, climb: Climb, root: int, said: tuple[Any, ...]) -> None:
        """Reports of a root that differ between hosts reach the controller. If no other root is still to report, it
        is told now what most roots reported before."""
        first, *others = said
        if climb.quiet is None or climb.missing or climb.told or climb.last[0] > self._island.sim.now:
            self._island.reports.reach(root, (first,))
        else:
            most = self._most(climb)
            self._island.reports.reach(root, (first,) if most is None else (most, first))
        for each in others:
            self._island.reports.reach(root, (each,))

    def _most(self, climb: Climb) -> Any:
        """What all roots report but those below which hosts differ; None if there are no others."""
        climb.told = True
        below = [self._island.below(row) for row in climb.loud]
        rest = spans.minus(climb.hosts, spans.union(*below))
        return replace(climb.quiet, hosts=rest) if rest else None

    def _of_root(self, climb: Climb, row: int) -> tuple[Any, ...]:
        """What the root makes of the reports below it, of which some differ."""
        loud = climb.loud[row]
        mine = spans.meet(climb.hosts, self._island.below(row))
        rest = spans.minus(mine, spans.union(*(report.hosts for report in loud)))
        return merged([*loud, replace(climb.quiet, hosts=rest)] if rest else loud)


def is_loud(report: Any) -> bool:
    """Whether the report says more of a host than that it is one of them."""
    return isinstance(report, m.PieceCounts) or getattr(report, "blame", None) is not None


def merged(said: Sequence[Any], among: Spans | None = None) -> tuple[Any, ...]:
    """What a relay makes of these reports: one for each blame. `among`: only of what these hosts reported."""
    if among is None and len(said) <= 1:
        return tuple(said)
    reduction = Reduction()
    for report in said:
        hosts = report.hosts if among is None else spans.meet(report.hosts, among)
        if hosts:
            reduction.put(report, hosts)
    return tuple(reduction.take(said[0]))


def report_about(report: Any) -> Key:
    seq = getattr(report, "seq", None)
    return type(report), getattr(report, "transfer", -1) if seq is None else seq

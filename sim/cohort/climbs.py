"""Reports of single hosts on their way up the tree: each relay waits for all hosts below it that take part.

This is for reports whose times are not known together, mostly on transfers. (`island` computes reports on gangs
as vectors.) Relays combine reports with core's `reduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from core.fanout import Reduction
from core.model import Spans, spans
from core.protocol import messages as m

from ..network import CONTROLLER
from .routes import rows_of

if TYPE_CHECKING:
    from .island import CohortIsland

Key = tuple[type, int]


class Climb:
    """One report: for each host, how many hosts below it are still awaited, and what has arrived."""

    __slots__ = ("left", "said")

    def __init__(self, left: dict[int, int]) -> None:
        self.left = left
        self.said: dict[int, Reduction] = {}


class Climbs:
    def __init__(self, island: CohortIsland) -> None:
        self._island = island
        self._under_way: dict[Key, Climb] = {}
        self._shapes: dict[tuple[Spans, int], dict[int, int]] = {}

    def report(self, row: int, report: Any, hosts: Spans) -> None:
        """Takes in a report that this host's own executor makes now; `hosts` take part."""
        key = report_about(report)
        climb = self._under_way.get(key)
        if climb is None:
            climb = self._under_way[key] = Climb(dict(self._awaited(hosts)))
        self._take(key, climb, row, report)

    def _awaited(self, hosts: Spans) -> dict[int, int]:
        island = self._island
        key = (hosts, island.tree_number)
        found = self._shapes.get(key)
        if found is None:
            found = {}
            taking_part = np.arange(island.island.hosts)[rows_of(hosts, island.island)]
            for row in taking_part.tolist():
                while row >= 0:
                    found[row] = found.get(row, 0) + 1
                    row = island.tree.parent(row)
            self._shapes[key] = found
        return found

    def _take(self, key: Key, climb: Climb, row: int, report: Any) -> None:
        reduction = climb.said.get(row)
        if reduction is None:
            reduction = climb.said[row] = Reduction()
        reduction.put(report, report.hosts)
        climb.left[row] -= spans.count(report.hosts)
        if climb.left[row]:
            return
        del climb.said[row]
        for combined in reduction.take(report):
            self._send(key, climb, row, combined)
        if not climb.said and not any(climb.left.values()):
            self._under_way.pop(key, None)

    def _send(self, key: Key, climb: Climb, row: int, report: Any) -> None:
        island = self._island
        sim, parent = island.sim, island.tree.parent(row)
        message = m.Reports(island.island.index, island.epoch, island.tree_number, (report,))
        base = island.island.base_host
        to = base + parent if parent >= 0 else CONTROLLER
        arrival = sim.network.report_arrival(base + row, to, report, sim.now + sim.writing(message))
        if parent < 0:
            sim.clock.at(arrival, island.reach_controller, base + row, report)
        else:
            sim.clock.at(arrival + sim.taking(message), self._take, key, climb, parent, report)


def merged(said: Sequence[m.Done], among: Spans | None = None) -> tuple[m.Done, ...]:
    """What a relay makes of these reports: one for each blame. `among`: only of what these hosts reported."""
    if among is None and len(said) <= 1:
        return tuple(said)
    reduction = Reduction()
    for report in said:
        hosts = report.hosts if among is None else spans.meet(report.hosts, among)
        if hosts:
            reduction.put(report, hosts)
    return tuple(reduction.take(said[0]))  # type: ignore[arg-type]  # like what it was given


def report_about(report: Any) -> Key:
    return type(report), getattr(report, "seq", getattr(report, "transfer", -1))

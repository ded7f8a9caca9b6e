"""Reports of a cohort's hosts as they reach the controller, which knows the island as a tree with one root.

    take_in     one report, now                 from_roots  the same report of all roots: a wave, and then the last one
    reach       one root's report, now          quiet, compiled  one that costs no CPU

Neighbours: `island` and `climbs` say when reports come; `history` remembers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.protocol import effects as e
from core.protocol import messages as m

from ..engine import NOTHING, Order, Wave
from ..network import report_number

if TYPE_CHECKING:
    from .island import CohortIsland


class ControllerReports:
    def __init__(self, island: CohortIsland) -> None:
        self._island, self._sim = island, island.sim
        # By time: what is said of code then, with the row of the host that says it, and in which order it was asked.
        self._compiled: dict[int, list[tuple[int, int, int, m.Compiled]]] = {}

    def take_in(self, sender: int, number: int, report: m.Report | None) -> None:
        """Delivers a report that comes now; None: one that only takes the controller's time."""
        self._put((sender, number), NOTHING if report is None else self._said((report,), self._sim.now))

    def from_roots(self, base: int, wave: tuple[Wave | None, int, int], said: tuple[Any, ...], number: int) -> None:
        """Delivers a report from all roots. All copies but the last only take the controller's time."""
        sim, (early, last, sender) = self._sim, wave
        sim.network.messages += 1
        if early is not None:
            sim.network.messages += early.number
            sim.controller_process.lane.absorb_wave(base, early, number)
        sim.clock.at(base + last, self._put, (sender, number), self._said(said, base + last))

    def reach(self, root: int, reports: tuple[m.Report, ...]) -> None:
        """Delivers a report of one root, which arrives now. Those before it have come and been paid for."""
        sim = self._sim
        sim.last_seen = sim.now
        self._put((root, report_number(reports[-1])), self._said(reports, sim.now))

    def quiet(self, at: int, report: Any) -> None:
        """Delivers a report that costs no CPU."""
        self._sim.clock.at(max(at, self._sim.now), self._serve, report)

    def compiled(self, at: int, last: int, report: m.Compiled) -> None:
        """The same for code, of which the host with this row says it last. A host speaks of plans in the order in which
        it was told of them, whichever part it is in."""
        at = max(at, self._sim.now)
        said = self._compiled.get(at)
        if said is None:
            said = self._compiled[at] = []
            self._sim.clock.at(at, self._serve_compiled)
        asked = self._island.names.codes.get((report.plan, report.code), -1)
        said.append((last, asked, len(said), report))

    def _serve_compiled(self) -> None:
        for *_, report in sorted(self._compiled.pop(self._sim.now)):
            self._serve(report)

    def _serve(self, report: Any) -> None:
        self._sim.controller_process.serve(self._said((report,), self._sim.now), self._sim.now)

    def _put(self, order: Order, said: Any) -> None:
        self._sim.controller_process.lane.put(order, self._island.report_take, said)

    def _said(self, reports: tuple[m.Report, ...], at: int) -> e.MessageReceived:
        """What the controller is told at this time."""
        island = self._island
        if island.history is not None:
            island.history.told(reports, at)
        return e.MessageReceived(
            island.speaker, m.Reports(island.island.index, island.epoch, island.tree_number, reports)
        )

"""Checks what hosts report: what a root cannot truly say, and whether many equal reports may be heard as one.

Roots that say the same (`CameTogether`) are heard as one, if that is the same to the last command as hearing one
after another: if nothing happens before the last of them has spoken. Where something might, and where one of them
may not speak, they are heard apart.

Neighbours: `controller` asks before it passes a report on.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..model import Spans, spans
from ..protocol import (
    Arrived,
    Beat,
    Came,
    CameTogether,
    Compiled,
    Counted,
    Done,
    Enqueued,
    Lost,
    Report,
    Trouble,
)
from .compilation import Compilation
from .state import Company, IslandState, State

OF_ONE = (Lost, Trouble)
OF_MANY = (Done, Beat, Enqueued, Compiled, Arrived)  # hosts may say the same; the most frequent first
KEPT = 512  # companies of an island, and sets of hosts of a company, that are remembered


class ReportChecks:
    def __init__(self, state: State, *, compilation: Compilation) -> None:
        self._state = state
        self._compilation = compilation

    def lie(self, report: Any, island: IslandState, below: Spans) -> str:
        """What is wrong with a report of a root with these hosts below it: it is of other hosts, or another island."""
        kind = type(report)
        if kind is Lost or kind is Trouble:
            if not spans.contains(below, report.host):
                return f"reports of host {report.host}, which is not below it"
            if isinstance(report, Trouble) and report.device >= 0:
                if not spans.contains(island.island.devices_of(report.host), report.device):
                    return f"reports of device {report.device}, which is not one of host {report.host}"
        elif report.hosts != below:
            hosts = report.hosts
            if not hosts or spans.normal(hosts) != hosts or not spans.within(hosts, below):
                return f"reports for hosts {spans.text(hosts)}, not all of which are below it"
        if kind is Done and report.sizes and min(report.sizes) < 0:
            return f"reports sizes {report.sizes}"
        seq: int = report.transfer if kind is Counted else getattr(report, "seq", -1)
        entry = self._state.in_flight.get(seq)
        if entry is not None and entry.island != island.island.index:
            return "reports on what is another island's"
        return ""

    # --- many at once --------------------------------------------------------------------------------------------

    def may_take(self, event: CameTogether) -> bool:
        """Whether it may be heard as one message."""
        message, islands = event.message, self._state.islands
        if not 0 <= message.island < len(islands):
            return False
        island = islands[message.island]
        if (message.epoch, message.tree) != (island.epoch, island.tree_number):
            return False
        company = self._company(island, event.peers)
        if company is None:
            return False
        reports = message.reports
        several = len(reports) > 1 and sum(not isinstance(report, Beat) for report in reports) > 1
        for report in reports:  # noqa: SIM110 - asked for each gang, and faster than all()
            if not self._alike(report, island, company, several):
                return False
        return True

    def _alike(self, report: Report, island: IslandState, company: Company, several: bool) -> bool:
        """All of the company say it, truly, and nothing comes of it before the last of them has. `several`: what comes
        of one report must not come before what comes of another, so none may have been made already."""
        if not isinstance(report, OF_MANY) or not self._by_all(report.hosts, company):
            return False
        if self.lie(report, island, company.below):
            return False
        if isinstance(report, (Done, Compiled)):
            if report.blame is not None:
                return False
        elif isinstance(report, Beat):
            return not island.stream.full
        elif isinstance(report, Arrived):
            return True
        return not several or self._fresh(report)

    def _fresh(self, report: Done | Enqueued | Compiled) -> bool:
        if isinstance(report, Compiled):
            waiting = self._compilation.awaits(report.plan, report.code)
        else:
            entry = self._state.in_flight.get(report.seq)
            if entry is None:
                return True
            waiting = entry.left if isinstance(report, Done) else entry.unacked
        return not waiting or spans.within(report.hosts, waiting)

    def _by_all(self, hosts: Spans, company: Company) -> bool:
        if hosts == company.below:
            return True
        found = company.shared.get(hosts)
        if found is None:
            if len(company.shared) >= KEPT:
                company.shared.clear()
            found = company.shared[hosts] = all(spans.overlap(hosts, below) for below in company.each)
        return found

    def _company(self, island: IslandState, peers: Spans) -> Company | None:
        """The roots that have these connections; None if some are no roots."""
        if peers not in island.company:
            if len(island.company) >= KEPT:
                island.company.clear()
            below = self._below(island, peers)
            whole = all(below)
            island.company[peers] = Company(spans.union(*below), tuple(below)) if whole else None
        return island.company[peers]

    def _below(self, island: IslandState, peers: Spans) -> list[Spans]:
        """All below each of them; nobody below what is no root of the island."""
        hosts = [self._state.host_peers.get(peer, -1) for peer in spans.items(peers)]
        rows = island.stream.shape
        return [rows.below(host) if rows.is_root(host) else spans.EMPTY for host in hosts]

    def apart(self, event: CameTogether) -> list[Came]:
        """As messages one after another. What is below none of them is the first one's lie."""
        message, islands = event.message, self._state.islands
        if not 0 <= message.island < len(islands):
            return [Came(peer, message) for peer in spans.items(event.peers)]
        below = self._below(islands[message.island], event.peers)
        everywhere = spans.union(*below)
        found: list[Came] = []
        for number, peer in enumerate(spans.items(event.peers)):
            part = below[number]
            said = (
                [_part(report, part, everywhere, number == 0) for report in message.reports] if part else []
            )
            reports = tuple(report for report in said if report is not None)
            if reports or not part:
                found.append(Came(peer, replace(message, reports=reports) if part else message))
        return found


def _part(report: Report, below: Spans, everywhere: Spans, first: bool) -> Report | None:
    """The part of a combined report that concerns these hosts."""
    if isinstance(report, OF_ONE):
        mine = spans.contains(below, report.host) or (first and not spans.contains(everywhere, report.host))
        return report if mine else None
    if spans.normal(report.hosts) != report.hosts:
        return report if first else None
    hosts = spans.meet(report.hosts, below)
    if first:
        hosts = spans.union(hosts, spans.minus(report.hosts, everywhere))
    return replace(report, hosts=hosts) if hosts else None

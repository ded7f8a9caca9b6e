"""Checks what hosts report: what a root cannot truly say.

Neighbours: `controller` asks before it passes a report on.
"""

from __future__ import annotations

from typing import Any

from ..model import Spans, spans
from ..protocol import Done, HostFault, Lost, PieceCounts
from .state import IslandState, State


class ReportChecks:
    def __init__(self, state: State) -> None:
        self._state = state

    def lie(self, report: Any, island: IslandState, below: Spans) -> str:
        """What is wrong with a report of a root with these hosts below it: it is of other hosts, or another island."""
        kind = type(report)
        if kind is Lost or kind is HostFault:
            if not spans.contains(below, report.host):
                return f"reports of host {report.host}, which is not below it"
            if isinstance(report, HostFault) and report.device >= 0:
                if not spans.contains(island.island.devices_of(report.host), report.device):
                    return f"reports of device {report.device}, which is not one of host {report.host}"
        elif report.hosts != below:
            hosts = report.hosts
            if len(hosts) == len(below) == 1:  # as where one of them answers a get
                among = below[0][0] <= hosts[0][0] < hosts[0][1] <= below[0][1]
            else:
                among = hosts and spans.is_normal(hosts) and spans.within(hosts, below)
            if not among:
                return f"reports for hosts {spans.text(hosts)}, not all of which are below it"
        if kind is Done and report.sizes and min(report.sizes) < 0:
            return f"reports sizes {report.sizes}"
        seq: int = report.transfer if kind is PieceCounts else getattr(report, "seq", -1)
        entry = self._state.in_flight.get(seq)
        if entry is not None and entry.island != island.island.index:
            return "reports on what is another island's"
        return ""

"""What an operator asks of the controller: slices moved, suspended and resumed, hosts cordoned and drained, more hosts.

A call names clients and agents as people know them; core gets one event, which the event log has, and answers at once
whether that has begun. Cordons, what is suspended, and which hosts there were are kept in the controller's folder and
said again at its next start. Neighbours: `server`, which has the calls; core's `relocation` and `drains`, which decide.
The functions that matter: `operate`, `grow`, `again`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from core.model import Cluster, Impossible, spans, why_not_grown
from core.protocol import effects as e

from ..node import CallError
from ..wire import OperateCall, OperateReply
from .cluster_file import keep
from .roles import only
from .state_folder import known_file

if TYPE_CHECKING:
    from .server import Server

OF_HOSTS = ("cordon", "uncordon", "drain")


class OperatorCalls:
    """`folder`: the controller's, if it has one."""

    def __init__(self, server: Server, folder: Path | None) -> None:
        self._server, self._folder = server, folder
        self._cordons, self._suspended, self._hosts = (
            known_file(folder, name) if folder else None for name in ("cordons", "suspended", "hosts")
        )
        self.files = [file for file in (self._cordons, self._suspended, self._hosts) if file is not None]
        self.answer = ""  # what core has said to the last event

    def again(self) -> None:
        """Say which hosts there were, what was suspended at the last start, and cordon the hosts that were cordoned."""
        if self._hosts is not None and (hosts := self._hosts.read()):
            self._server.node.feed(e.HostsKnown(hosts))
        if self._suspended is not None and (slices := self._suspended.read()):
            self._server.node.feed(e.SuspensionsKnown(slices))
        for host in self._cordons.read() if self._cordons is not None else ():
            self._server.node.feed(e.OperateHost(host, "cordon"))

    def keep(self, said: e.SuspensionsChanged | e.HostsJoined) -> None:
        file, value = (self._hosts, said.hosts) if isinstance(said, e.HostsJoined) else (self._suspended, said.slices)
        if file is not None:
            file.write(value)

    def operate(self, request: OperateCall) -> OperateReply:
        """Raises CallError if nothing of it has begun. Call it within a turn of the node."""
        if request.action in OF_HOSTS:
            number = self._host(request.host)
            event: e.Event = e.OperateHost(number, request.action, round(request.seconds * 1e9))  # type: ignore[arg-type]
        else:
            number = only(self._server.controller.snapshot().clients, request.client).number
            away = spans.of(map(self._host, request.hosts))
            event = e.OperateSlices(number, request.action, request.slice, away, self._island(request.island))  # type: ignore[arg-type]
        self._server.node.feed(event)
        if self.answer:
            raise CallError(self.answer, grpc.StatusCode.FAILED_PRECONDITION)
        if self._cordons is not None and request.action in OF_HOSTS:
            self._cordons.write(list(self._server.controller.snapshot().cordoned))
        return OperateReply(number)

    def grow(self, cluster: Cluster) -> OperateReply:
        """What is there goes on, and agents may join as the new hosts from now on. Raises CallError if it cannot be
        this. Call it within a turn of the node."""
        server = self._server
        wrong = why_not_grown(server.cluster, cluster)
        if not wrong and self._folder is not None:
            try:
                keep(self._folder, cluster)
            except OSError as error:
                wrong = f"its --state {self._folder} cannot keep it: {error.strerror}"
        if not wrong:
            server.node.feed(e.GrowCluster(cluster))
            wrong = self.answer
        if wrong:
            raise CallError(f"the cluster cannot grow to that: {wrong}", grpc.StatusCode.FAILED_PRECONDITION)
        return OperateReply(cluster.hosts)

    # --- names ------------------------------------------------------------------------------------------------

    def _host(self, name: str) -> int:
        agents = self._server.enrolment.agents()
        found = [host for host, agent in agents.items() if agent.name == name]
        if not found and name.isdecimal() and int(name) < self._server.cluster.hosts:
            return int(name)
        if len(found) != 1:
            known = ", ".join(repr(agent.name) for agent in list(agents.values())[:8]) or "none"
            raise CallError(
                f"no host is called {name!r}: give a number from 0 to {self._server.cluster.hosts - 1}, or an agent's "
                f"name ({known})",
                grpc.StatusCode.NOT_FOUND,
            )
        return found[0]

    def _island(self, name: str) -> int:
        if not name:
            return -1
        try:
            return self._server.cluster.island(name).index
        except Impossible as error:
            raise CallError(str(error), grpc.StatusCode.NOT_FOUND) from None

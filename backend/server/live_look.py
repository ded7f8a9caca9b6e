"""Answers those who look again and again, such as `seaway dashboard`: what goes on, and what is new in the trace.

    Look(cursor) --> looked(server, request) --> LiveLook: core's view, an increment of the trace, hosts

It costs what has happened since the caller last looked, and nothing while nobody does. Neighbours: `server`, under
whose lock it works; `core.controller.live_view` and `core.record.increments`, which find what it says;
`cluster_status`, the same cluster for scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.controller import live_view
from core.model import spans
from core.record import HostLine, LiveLook, Look, increment

if TYPE_CHECKING:
    from .server import Server

MOST = 100_000  # rows of a table in one answer
SAID = 10  # of the controller's words


def looked(server: Server, request: Look) -> LiveLook:
    cursor = request.cursor_of(server.identity, MOST)
    connected = [host for host in range(server.cluster.hosts) if server.node.connected(host)]
    lost = server.unrecorded()
    return LiveLook(
        server.identity, server.began, server.node.now(), live_view(server.controller), increment(server.trace, cursor),
        spans.of(connected), _hosts(server) if request.hosts else (), tuple(server.told[-SAID:]),
        (lost,) if lost else (),
    )  # fmt: skip


def _hosts(server: Server) -> tuple[HostLine, ...]:
    agents, found = server.enrolment.agents(), []
    for host in range(server.cluster.hosts):
        agent, clock = agents.get(host), server.clocks.of(host) if server.node.connected(host) else None
        name, address = (agent.name, agent.address) if agent is not None else ("", "")
        found.append(HostLine(name, address, **(clock or {})))
    return tuple(found)

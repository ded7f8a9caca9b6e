"""How things are, as plain data: what `python -m seaway status` prints and scripts read.

Neighbours: `server`, under whose lock it looks at core's books; it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.controller import Stall
from core.model import spans

if TYPE_CHECKING:
    from core.controller import IslandBook

    from .server import Server


SHOWN = 100  # stalls, and waits, that are told one by one: the longest


def status_of(server: Server) -> dict[str, Any]:
    books = server.controller.books
    now, stalled, waits = server.node.now(), books.stalls.now(), books.stalls.waits()
    return {
        "address": server.address,
        "incarnation": books.incarnation,
        "islands": [
            _island(server, book, [_stall(each, now) for each in stalled if each.island == book.island.name])
            for book in books.islands
        ],
        "clients": [_client(session) for session in books.sessions.values()],
        "runs": len(books.runs),
        "submitted": server.trace.counted("runs"),
        "gangs": server.trace.counted("gangs"),
        "stalls": books.stalls.ever,
        "stalled": [_stall(each, now) for each in stalled[:SHOWN]],
        "stalled_elsewhere": sum(not each.island for each in stalled),
        "waits": [_stall(each, now) for each in waits[:SHOWN]],
        "refused": [
            {"agent": each.name, "island": books.cluster.islands[each.island].name if each.island >= 0 else "",
             "reason": each.reason, "seconds_ago": _seconds(now - each.at)}
            for each in books.resources.refusals.all()
        ],
        "buffers": len(books.buffers),
        "contents_through_controller": sum(server.node.carried),
        "code": {"blobs": len(server.blobs), "bytes": server.blobs.nbytes},
        "record": _record(server),
        "refusals": dict(server.door.refusals.totals),
        "said": server.told[-10:],
    }  # fmt: skip


def _record(server: Server) -> dict[str, str] | None:
    """The event log that is kept, and why no more is written to it."""
    return None if server.log is None else {"file": str(server.log.file.path), "lost": server.unrecorded()}


def _stall(found: Stall, now: int) -> dict[str, Any]:
    """`seconds`: for which it has waited."""
    return {
        "island": found.island, "client": found.client, "program": found.program, "node": found.node,
        "hosts": spans.text(found.hosts), "reason": found.reason, "seconds": _seconds(now - found.since),
    }  # fmt: skip


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 1)


def _island(server: Server, book: IslandBook, stalled: list[dict[str, Any]]) -> dict[str, Any]:
    island = book.island
    agents = server.enrolment.agents()
    flights = server.controller.books.flights.on(island.index)
    return {
        "name": island.name,
        "phase": book.phase,
        "epoch": book.epoch,
        "kind": island.kind,
        "platform": server.enrolment.platform_of(island.index),
        "hosts": [
            {
                "host": host,
                "agent": agents[host].name if host in agents else "",
                "address": agents[host].address if host in agents else "",
                "connected": server.node.connected(host),
                "member": spans.contains(book.members, host),
                "clock": server.clocks.of(host) if server.node.connected(host) else None,
            }
            for host in range(island.base_host, island.base_host + island.hosts)
        ],
        "devices": island.devices,
        "under_way": len(flights),
        "late": stalled[:SHOWN],
        "stalled": len(stalled),
    }


def _client(session: Any) -> dict[str, Any]:
    return {
        "client": session.number,
        "name": session.name,
        "weight": session.weight,
        "programs": len(session.programs),
        "runs": len(session.runs),
    }

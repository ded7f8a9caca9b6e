"""How things are, as plain data: what `python -m seaway status` prints and scripts read.

Neighbours: `server`, under whose lock it looks at core's books; it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core import spans

if TYPE_CHECKING:
    from core.controller.islands import IslandBook

    from .server import Server


def status_of(server: Server) -> dict[str, Any]:
    books = server.controller.books
    return {
        "address": server.address,
        "incarnation": books.incarnation,
        "islands": [_island(server, book) for book in books.islands],
        "clients": [_client(session) for session in books.sessions.values()],
        "runs": len(books.runs),
        "submitted": server.trace.counted("runs"),
        "gangs": server.trace.counted("gangs"),
        "stalls": books.flights.stalls,
        "buffers": len(books.buffers),
        "contents_through_controller": sum(server.node.carried),
        "code": {"blobs": len(server.blobs), "bytes": server.blobs.nbytes},
        "refused": dict(server.door.refusals.totals),
        "said": server.told[-10:],
    }


def _island(server: Server, book: IslandBook) -> dict[str, Any]:
    island = book.island
    agents = server.enrolment.agents()
    flights = server.controller.books.flights.on(island.index)
    late = server.controller.books.flights.late(island.index)
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
        "late": [
            {"program": flight.run.describe(flight.step)[0], "node": flight.run.describe(flight.step)[1],
             "hosts": spans.text(flight.left)}
            for flight in late if flight.run is not None
        ],
        "stalled": len(late),
    }  # fmt: skip


def _client(session: Any) -> dict[str, Any]:
    return {
        "client": session.number,
        "name": session.name,
        "weight": session.weight,
        "programs": len(session.programs),
        "runs": len(session.runs),
    }

"""The cluster's status as plain data, for `python -m seaway status` and scripts.

Neighbour: `server`, under whose lock this reads a snapshot of core's controller; it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from core.controller import Stall, live_view
from core.model import spans
from core.protocol import Used
from core.record import HostLine, LiveLook, Look, increment

if TYPE_CHECKING:
    from core.controller import ClientView, DrainView, IslandView, KeptDevices, Snapshot

    from .server import Server


SHOWN = 100  # most stalls, and waits, that are listed: the longest ones


def status_of(server: Server) -> dict[str, Any]:
    found = server.controller.snapshot()
    now, stalled = server.node.now(), found.stalls
    return {
        "address": server.address,
        "incarnation": found.incarnation,
        "islands": [
            _island(server, found, island, [_stall(each, now) for each in stalled if each.island == island.name])
            for island in found.islands
        ],
        "clients": [_client(client) for client in found.clients],
        "accounts": accounts_of(server),
        "runs": found.left["runs"],
        "stalls": found.stalls_ever,
        "stalled": [_stall(each, now) for each in stalled[:SHOWN]],
        "stalled_elsewhere": sum(not each.island for each in stalled),
        "waits": [_stall(each, now) for each in found.waits[:SHOWN]],
        "moving": [
            {"client": each.client, "slices": each.slices, "state": each.words, "waits": each.waits,
             "seconds": _seconds(now - each.since)}
            for each in found.relocations
        ],
        "not_moved": [{"client": number, "reason": why} for number, why in found.not_moved],
        "refused": [
            {"agent": each.name, "island": server.cluster.islands[each.island].name if each.island >= 0 else "",
             "reason": each.reason, "seconds_ago": _seconds(now - each.at)}
            for each in found.refusals
        ],
        "buffers": found.left["buffers"],
        "contents_through_controller": sum(server.node.carried),
        "code": {"blobs": len(server.blobs), "bytes": server.blobs.nbytes},
        "record": _record(server),
        "unkept": list(server.unkept()),
        "refusals": dict(server.refusals.totals),
        "said": server.told[-10:],
    }  # fmt: skip


def figures_of(server: Server) -> dict[str, Any]:
    """The status, and what the metrics alone show."""
    found = status_of(server)
    islands, clients = msgspec.to_builtins(server.controller.meters.shown(server.node.now()))
    for row, more, island in zip(found["islands"], islands, server.cluster.islands, strict=True):
        row |= more | {"memory": island.memory * island.devices}
    return found | {"meters": [each | each["meter"] for each in clients]}


def accounts_of(server: Server, hours: int = 24) -> list[dict[str, Any]]:
    """What each account has now (with its limits; None: no limit), and has used in all and in the last hours."""
    found = server.controller.accounts.shown(server.node.now(), hours)
    return [
        {
            "account": each.limits.name, "role": each.limits.role, "clients": each.clients, "has": each.has,
            "limits": {name: getattr(each.limits, name) for name in each.limits.__struct_fields__[2:]},
            "used": _used(each.used), "lately": _used(each.lately) | {"hours": hours},
        }
        for each in found
    ]  # fmt: skip


def _used(used: Used) -> dict[str, Any]:
    found = msgspec.structs.asdict(used)
    return {"device_seconds": round(found.pop("device_time") / 1e9, 3), **found}


def _record(server: Server) -> dict[str, str] | None:
    """The event log's file, and why it is not written any more, if so."""
    return None if server.log is None else {"file": str(server.log.file.path), "lost": server.unrecorded()}


def _stall(found: Stall, now: int) -> dict[str, Any]:
    """`seconds`: how long it has waited."""
    return {
        "island": found.island, "client": found.client, "program": found.program, "node": found.node,
        "hosts": spans.text(found.hosts) if found.hosts else "", "reason": found.reason,
        "seconds": _seconds(now - found.since),
    }  # fmt: skip


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 1)


def _island(server: Server, whole: Snapshot, view: IslandView, stalled: list[dict[str, Any]]) -> dict[str, Any]:
    now = server.node.now()
    drains = {each.host: each for each in whole.drains}
    island = server.cluster.islands[view.index]
    agents = server.enrolment.agents()
    return {
        "name": island.name,
        "phase": view.phase,
        "epoch": view.epoch,
        "kind": island.kind,
        "platform": server.enrolment.platform_of(island.index),
        "hosts": [
            {
                "host": host,
                "agent": agents[host].name if host in agents else "",
                "address": agents[host].address if host in agents else "",
                "connected": server.node.connected(host),
                "member": spans.contains(view.members, host),
                "cordoned": host in whole.cordoned,
                "drains": _drain(drains[host], now) if host in drains else None,
                "drained": host in whole.drained,
                "clock": server.clocks.of(host) if server.node.connected(host) else None,
            }
            for host in range(island.base_host, island.base_host + island.hosts)
        ],
        "broken": {"reason": view.broken, "seconds": _seconds(server.node.now() - view.since)} if view.broken else None,
        "devices": island.devices,
        "under_way": len(view.in_flight),
        "reserved": [_kept(each, server.node.now()) for each in view.reserved[:SHOWN]],
        "late": stalled[:SHOWN],
        "stalled": len(stalled),
    }


def _drain(found: DrainView, now: int) -> dict[str, Any]:
    """`left`: seconds until it leaves whatever is left on it; None: no matter how long."""
    left = _seconds(found.until - now) if found.until else None
    return {"waits": found.waits, "seconds": _seconds(now - found.since), "left": left}


def _kept(found: KeptDevices, now: int) -> dict[str, Any]:
    """Devices that the policy keeps free, and for what gang."""
    return {
        "devices": spans.text(found.devices), "client": found.client_name, "program": found.program,
        "node": found.node, "seconds": _seconds(now - found.since),
    }  # fmt: skip


def _client(view: ClientView) -> dict[str, Any]:
    return {
        "client": view.number,
        "name": view.name,
        "account": view.account,
        "weight": view.weight,
        "programs": view.programs,
        "runs": len(view.runs),
        "slices": [{"slice": name, "devices": spans.text(devices) if devices else ""} for name, devices in view.slices],
    }


# --- for those who look again and again ----------------------------------------------------------------------------

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

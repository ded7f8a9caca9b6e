"""Fetches from hosts when each of a session's gangs was enqueued and when it ended, for the session's trace.

A trace and the session's clients go in; rows of times come out. The controller signs a permit that says which runs are
ours. Then all hosts that ran a gang of these are asked at once, with a short timeout. Missing answers are left out: the
trace then has only the controller's times for those gangs.
See `backend.devices.gang_times`, which fetches, and `seaway.trace.hosts`, which merges the two.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.client import Head
from backend.devices import ROOM, Taken, fetched
from backend.node import CallError
from backend.wire import call_messages
from core.model import Cluster
from core.record import Trace

if TYPE_CHECKING:
    from backend.streams import LoopThread

    from .port import RealPort

PATIENCE = 5.0  # seconds, for each of the two requests
ROWS = 1 << 18  # rows from all hosts together ...
LEAST = 256  # ... and at least this many from each

log = logging.getLogger("seaway")


def asked(core: Trace, cluster: Cluster, head: Head, ports: Sequence[RealPort], loop: LoopThread) -> list[Taken]:
    """The hosts' rows. Must not be called on the loop's thread."""
    nodes = {port.client.number: port.remote.node for port in ports}
    passes = {number: node.passes.get(f"client/{number}", "") for number, node in nodes.items()}
    clients = [(number, shown) for number, shown in passes.items() if shown]
    directory = {name: at for node in nodes.values() for name, at in node.directory.items()}
    hosts = hosts_of(core, cluster, {number for number, _ in clients})
    addresses = {host: directory[f"host/{host}"] for host in sorted(hosts) if f"host/{host}" in directory}
    return loop.do(_fetched(head, clients, addresses)) if addresses and clients else []


async def _fetched(head: Head, clients: list[tuple[int, str]], addresses: dict[int, str]) -> list[Taken]:
    try:
        permitted = await head.ask(call_messages.Permit(tuple(clients)), PATIENCE)
    except CallError as wrong:
        log.warning("the trace lacks the hosts' own times: %s", wrong)
        return []
    most = max(LEAST, min(ROOM, ROWS // len(addresses)))
    mine = f"client/{clients[0][0]}", clients[0][1]
    found = await fetched(addresses, head.access, permitted, most, PATIENCE, mine)
    if found.missing:
        host, why = next(iter(found.missing.items()))
        number = f"{len(found.missing)} of {len(addresses)}"
        log.warning("the trace lacks the times of %s hosts; host %d: %s", number, host, why)
    return found.rows


def hosts_of(core: Trace, cluster: Cluster, clients: set[int]) -> set[int]:
    """The hosts on which gangs of these clients' runs ran."""
    mine = [client in clients for client in core.runs.column("client")]
    gangs = zip(core.gangs.column("run"), core.gangs.column("place"), strict=True)
    places = {place for run, place in gangs if run >= 0 and mine[run]}
    found: set[int] = set()
    for place in places & set(core.places):
        island = cluster.islands[core.places[place].island]
        for low, high in core.places[place].devices:
            found.update(range(island.host_of(low), island.host_of(high - 1) + 1))
    return found

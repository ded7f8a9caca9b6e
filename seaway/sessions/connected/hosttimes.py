"""What hosts know of a session's gangs, asked for with its trace: when each was enqueued there, and seen to end.

The controller says, signed, which runs are ours; each host that had a gang of these is asked, all at once, and not
waited for long: what does not come is left out, and the trace has what the controller alone knows.
Neighbours: `driver`; `backend.devices.gang_times`, which fetches; `seaway.trace.hosts`, which makes one trace of both.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backend.client import Head
from backend.devices import ROOM, Taken, fetched
from backend.node import Wrong
from core.model import Cluster
from core.record import Trace

if TYPE_CHECKING:
    from .loop import Loop
    from .port import RealPort

PATIENCE = 5.0  # seconds, for all of it
ROWS = 1 << 18  # gangs, of all hosts together ...
LEAST = 256  # ... and of each at least so many

log = logging.getLogger("seaway")


def asked(core: Trace, cluster: Cluster, head: Head, ports: Sequence[RealPort], loop: Loop) -> list[Taken]:
    """From any thread but the loop's."""
    nodes = {port.client.number: port.remote.node for port in ports}
    passes = {number: node.passes.get(f"client/{number}", "") for number, node in nodes.items()}
    clients = [(number, shown) for number, shown in passes.items() if shown]
    directory = {name: at for node in nodes.values() for name, at in node.directory.items()}
    hosts = hosts_of(core, cluster, {number for number, _ in clients})
    addresses = {host: directory[f"host/{host}"] for host in sorted(hosts) if f"host/{host}" in directory}
    return loop.do(_fetched(head, clients, addresses)) if addresses else []


async def _fetched(head: Head, clients: list[tuple[int, str]], addresses: dict[int, str]) -> list[Taken]:
    try:
        permitted = await head.permit(clients, PATIENCE)
    except Wrong as wrong:
        log.warning("the trace is without what hosts have seen: %s", wrong)
        return []
    most = max(LEAST, min(ROOM, ROWS // len(addresses)))
    found = await fetched(addresses, head.access, permitted, most, PATIENCE)
    if found.missing:
        host, why = next(iter(found.missing.items()))
        number = f"{len(found.missing)} of {len(addresses)}"
        log.warning("the trace is without what %s hosts have seen; host %d: %s", number, host, why)
    return found.rows


def hosts_of(core: Trace, cluster: Cluster, clients: set[int]) -> set[int]:
    """On which gangs of these clients' runs were."""
    mine = [client in clients for client in core.runs.column("client")]
    gangs = zip(core.gangs.column("run"), core.gangs.column("place"), strict=True)
    places = {place for run, place in gangs if run >= 0 and mine[run]}
    found: set[int] = set()
    for place in places & set(core.places):
        island = cluster.islands[core.places[place].island]
        for low, high in core.places[place].devices:
            first, last = (device - island.base_device for device in (low, high - 1))
            found.update(
                range(
                    island.base_host + first // island.devices_per_host,
                    island.base_host + last // island.devices_per_host + 1,
                )
            )
    return found

"""What a door is told of the cluster whose devices it serves, and how many devices each session gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.auth import Access
from core.model import Cluster


class ClusterRefused(Exception):
    """The door cannot serve this cluster; the text says why, and what to do about it."""


@dataclass(frozen=True)
class ServedCluster:
    """`devices`: of each session, 0: all of the island. `island`: its name, "": any. `name`: of sessions' clients.
    `wait`: seconds for the controller to answer at the start."""

    address: str
    access: Access = field(repr=False)
    devices: int = 0
    island: str = ""
    name: str = "jax"
    weight: int = 1
    priority: int = 0
    wait: float = 10.0


def session_devices_of(cluster: Cluster, devices: int, island: str) -> int:
    """How many devices a session has, if it is to have so many (0: all that can be had). Raises ClusterRefused."""
    there = {each.name: each.devices for each in cluster.islands}
    told = ", ".join(f"{count} on island {name!r}" for name, count in there.items())
    if island and island not in there:
        raise ClusterRefused(f"--island {island}: the cluster has no such island; there are {told}")
    most = there[island] if island else max(there.values())
    if devices > most:
        raise ClusterRefused(
            f"--devices {devices}: the devices of a session are on one island, and there are {told}"
        )
    return devices or most

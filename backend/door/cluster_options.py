"""What a door is told of the cluster whose devices it serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.auth import Access

__all__ = ["ClusterRefused", "ServedCluster"]


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

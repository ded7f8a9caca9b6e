"""Which devices each host of a cluster has, as core's `Hosts`. Neighbour: `simulation`."""

from __future__ import annotations

from core.model import Cluster


class HostsOf:
    """Which devices each host has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def host_of(self, device: int) -> int:
        return self._cluster.host_of(device)

    def devices_of(self, host: int) -> range:
        return self._cluster.devices_of(host)

"""The islands, hosts and devices of a trace or a page, with names: from a set-up, or inferred from a trace.

A set-up with a `cluster`, or with `islands` like core's, gives them exactly. A trace alone shows only islands with
devices in some place, and their hosts only up to the last such device.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from core.model import Spans, spans
from core.record import TracedPlace

Ints = npt.NDArray[np.int64]


class TraceIsland(msgspec.Struct, frozen=True):
    index: int
    name: str
    hosts: int
    devices_per_host: int
    base_host: int
    base_device: int
    kind: str = ""
    torus: tuple[int, ...] = ()  # as core's islands; (): it is none, or that is not known
    block: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        return self.hosts * self.devices_per_host


class TraceMachines:
    """Islands in the order of their devices; `known` is False if they were inferred."""

    def __init__(self, islands: Iterable[TraceIsland], known: bool) -> None:
        self.islands = sorted(islands, key=lambda island: island.base_device)
        self.known = known
        self._first_devices = np.array([island.base_device for island in self.islands], dtype=np.int64)
        self._first_hosts = np.array([island.base_host for island in self.islands], dtype=np.int64)
        self._devices_per_host = np.array([island.devices_per_host for island in self.islands], dtype=np.int64)
        self._numbers = np.array([island.index for island in self.islands], dtype=np.int64)

    @property
    def devices(self) -> Spans:
        return spans.normal((i.base_device, i.base_device + i.devices) for i in self.islands)

    @property
    def hosts(self) -> int:
        return sum(island.hosts for island in self.islands)

    def island_rows(self, devices: Ints) -> Ints:
        """Each device's index in `islands`."""
        return np.searchsorted(self._first_devices, devices, "right") - 1

    def hosts_of(self, devices: Ints) -> Ints:
        """Each device's host number."""
        rows = self.island_rows(devices)
        return self._first_hosts[rows] + (devices - self._first_devices[rows]) // self._devices_per_host[rows]

    def island_rows_of_hosts(self, hosts: Ints) -> Ints:
        return np.searchsorted(self._first_hosts, hosts, "right") - 1

    def island_of_host(self, host: int) -> TraceIsland:
        return self.islands[int(np.searchsorted(self._first_hosts, host, "right")) - 1]

    def names(self) -> list[str]:
        return [island.name for island in self.islands]

    def describe(self) -> str:
        devices = spans.count(self.devices)
        kinds = list(dict.fromkeys(island.kind for island in self.islands if island.kind))
        kind = f" ({', '.join(kinds)})" if kinds else ""
        islands = f" on {len(self.islands)} islands" if len(self.islands) > 1 else ""
        return f"{devices:,} device{'s' * (devices != 1)}{kind}, {self.hosts:,} host{'s' * (self.hosts != 1)}{islands}"


def of_setup(setup: Any) -> TraceMachines:
    """The machines of a sim.hardware.Setup, a core.model.topology.Cluster, or anything with such `islands`."""
    cluster = getattr(setup, "cluster", setup)
    islands = getattr(cluster, "islands", None)
    if not islands:
        raise TypeError(
            f"a trace's set-up has a cluster with islands, as sim.hardware.load gives; not {type(setup).__name__}"
        )
    fields = TraceIsland.__struct_fields__  # core's islands have these, too
    return TraceMachines((TraceIsland(*[getattr(each, name) for name in fields]) for each in islands), known=True)


def of_places(places: Mapping[int, TracedPlace]) -> TraceMachines:
    """The machines that the places of a trace show."""
    found: dict[int, list[int]] = {}  # island -> first device, devices a host, one past the last device
    for place in places.values():
        end = max((high for _, high in place.devices), default=place.first + 1)
        first, devices_per_host, last = found.get(place.island, (place.first, place.devices_per_host, end))
        found[place.island] = [min(first, place.first), max(devices_per_host, place.devices_per_host), max(last, end)]
    islands, base_host = [], 0
    for index, (first, devices_per_host, last) in sorted(found.items(), key=lambda item: item[1]):
        hosts = -(-(last - first) // devices_per_host)
        islands.append(TraceIsland(index, f"island {index}", hosts, devices_per_host, base_host, first))
        base_host += hosts
    return TraceMachines(islands, known=False)

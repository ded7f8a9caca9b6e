"""Where a slice would be on an idle cluster, and what a computation would take there: before it is bound.

Policies and bounds use such times; a gang takes the time of the place that it gets. Neighbours: `pricing`;
`sessions.simulated_door`.
"""

from __future__ import annotations

from msgspec.structs import replace

from core.model import Impossible, Place, SliceSpec
from core.slices import BoundSlice, Resources
from sim.hardware import Chip, Kernel, kernel_time
from sim.simulation import Simulation


class IdleCluster:
    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._places: dict[SliceSpec, tuple[Place, int] | None] = {}
        self._scratch: Resources | None = None

    def chip(self, spec: SliceSpec) -> Chip:
        return self._sim.setup.chips[self._island(spec)]

    def _island(self, spec: SliceSpec) -> int:
        for island in self._sim.cluster.islands:
            if spec.island in ("", island.name) and spec.kind in ("", island.kind):
                return island.index
        return 0

    def time(self, kernel: Kernel, spec: SliceSpec) -> int:
        """Nanoseconds, with its collectives."""
        found = self._place(replace(spec, name="")) if kernel.collectives else None
        if found is None:
            return kernel.duration
        place, index = found
        return kernel_time(kernel, place, self._sim.cluster.islands[index], self._sim.setup.chips[index])

    def _place(self, spec: SliceSpec) -> tuple[Place, int] | None:
        if spec not in self._places:
            self._places[spec] = None
            if self._scratch is None:
                self._scratch = Resources(self._sim.cluster)
                for host in range(self._sim.cluster.hosts):
                    self._scratch.host_joined(host)
            try:
                bound = self._scratch.bind(0, spec)
            except Impossible:
                return None  # core reports it when the program runs
            if isinstance(bound, BoundSlice):
                self._places[spec] = bound.place, bound.place.island
            self._scratch.release(0, spec.name)
        return self._places[spec]

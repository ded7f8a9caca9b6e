"""What a computation takes on a cluster where nothing else runs, from its kernel and the slice that it asks for.

Policies and bounds use such times before a slice is bound; a gang takes the time of the place that it gets.
"""

from msgspec.structs import replace

from core.model import Impossible, Place, SliceSpec
from core.slices import BoundSlice, Resources
from sim.hardware import Chip, Kernel, Setup, kernel_time


class IdleCluster:
    """What computations take on this cluster while nothing else runs."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._places: dict[SliceSpec, tuple[Place, int] | None] = {}
        self._scratch: Resources | None = None

    def chips(self, spec: SliceSpec) -> dict[str, Chip]:
        """By kind, of the islands where it may be; never none: core says so when there is no such island."""
        islands, chips = self._setup.cluster.islands, self._setup.chips
        suit = [one for one in islands if spec.island in ("", one.name) and spec.kind in ("", one.kind)]
        return {island.kind: chips[island.index] for island in suit or islands[:1]}

    def time(self, kernel: Kernel, spec: SliceSpec) -> int:
        """Nanoseconds, with its collectives, or without them if it can get no place."""
        found = self.place(replace(spec, name="")) if kernel.collectives else None
        if found is None:
            return kernel.duration
        place, index = found
        return kernel_time(kernel, place, self._setup.cluster.islands[index], self._setup.chips[index])

    def place(self, spec: SliceSpec) -> tuple[Place, int] | None:
        if spec not in self._places:
            self._places[spec] = None
            if self._scratch is None:
                self._scratch = Resources(self._setup.cluster)
                for host in range(self._setup.cluster.hosts):
                    self._scratch.host_joined(host)
            try:
                bound = self._scratch.bind(0, spec)
            except Impossible:
                return None  # core reports it when the program runs
            if isinstance(bound, BoundSlice):
                self._places[spec] = bound.place, bound.place.island
            self._scratch.release(0, spec.name)
        return self._places[spec]

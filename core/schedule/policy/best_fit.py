"""Best fit on a torus: each slice gets a contiguous block, where it leaves the fewest free devices beside itself.

A block that fills a hole leaves the large holes to slices that need them. Neighbours of a block are the devices one
step away along an axis; those that are free are counted.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod

from ...model import Island, Shape, devices_by_cell, extents, offsets, orientations, starts, sums, unravel
from .cluster_view import ClusterView, IslandUse
from .placement import Placement
from .slice_use import SliceUse


class BestFit(Placement):
    """First come, first served; each on the contiguous block that leaves the fewest free devices beside it."""

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            found = [(*block, island) for island in cluster.suits(use) if (block := best_block(use, island))]
            *_, devices, island = min(found, key=lambda each: each[:2], default=(0, 0, (), None))
            if island is None or not cluster.start(use, island, devices=devices):
                return


def best_block(use: SliceUse, island: IslandUse) -> tuple[int, int, Sequence[int]] | None:
    """(free devices beside it, its first cell, its devices in the order of the slice's mesh). Where there is no torus,
    any devices are as good, and none is named."""
    at, free = island.island, island.free_devices
    if len(free) < use.devices:
        return None
    if not at.torus:
        return 0, 0, ()
    there = set(free)
    cells = devices_by_cell(at.torus, at.block)
    values = [int(at.base_device + number in there) for number in cells]
    found = [
        (beside, first, (folded, axes))
        for folded, axes in blocks_of(use.devices, use.mesh, at.torus)
        for beside, first in _holes(at, values, extents(folded, axes, len(at.torus)))
    ]
    if not found:
        return None
    beside, first, chosen = min(found)
    return beside, first, _devices(at, first, *chosen)


@lru_cache(maxsize=1024)
def blocks_of(devices: int, mesh: Shape, torus: Shape) -> list[tuple[Shape, tuple[int, ...]]]:
    """The blocks that can hold this mesh; or, without one, so many devices."""
    if len(mesh) > 1:
        return list(orientations(mesh, torus))
    return [each for one in _factors(devices, len(torus)) for each in orientations(one, torus, cut=False)]


def _factors(number: int, count: int) -> Iterator[Shape]:
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factors(number // first, count - 1) if rest[0] >= first)


def _holes(island: Island, values: list[int], shape: Shape) -> Iterator[tuple[int, int]]:
    """(free devices beside it, first cell) of each block of this shape whose devices are all free."""
    torus, size = island.torus, prod(shape)
    inside = sums(values, torus, shape)
    slabs = [
        (axis, sums(values, torus, tuple(1 if at == axis else extent for at, extent in enumerate(shape))))
        for axis, extent in enumerate(shape) if extent < torus[axis]
    ]  # fmt: skip
    begins = [starts(*each) for each in zip(torus, shape, island.wraps, strict=True)]
    for start in product(*begins):
        first = _cell(start, torus)
        if inside[first] == size:
            yield sum(_beside(island, slab, axis, start, shape[axis]) for axis, slab in slabs), first


def _beside(island: Island, slab: list[int], axis: int, start: Shape, extent: int) -> int:
    """How many devices are free on the two sides of the block along this axis; where it nearly closes a ring, they are
    the same side."""
    size, wraps = island.torus[axis], island.wraps[axis]
    sides = {start[axis] - 1, start[axis] + extent}
    inside = {side % size for side in sides} if wraps else {side for side in sides if 0 <= side < size}
    return sum(slab[_cell((*start[:axis], side, *start[axis + 1 :]), island.torus)] for side in inside)


def _cell(at: Shape, torus: Shape) -> int:
    found = 0
    for coordinate, size in zip(at, torus, strict=True):
        found = found * size + coordinate
    return found


def _devices(island: Island, first: int, folded: Shape, axes: tuple[int, ...]) -> list[int]:
    torus, start = island.torus, list(unravel(first, island.torus))
    steps = [offsets(torus, island.block, axis) for axis in range(len(torus))]
    found = []
    for index in product(*map(range, folded)):
        at = list(start)
        for axis, step in zip(axes, index, strict=True):
            at[axis] = (start[axis] + step) % torus[axis]
        found.append(island.base_device + sum(steps[axis][coordinate] for axis, coordinate in enumerate(at)))
    return found

"""The physical devices of a slice, in the order of its virtual devices, as strides instead of a list.

A slice of a torus is a strided block of device ids, so a place is a few small tuples for 8 devices and for
100,000 alike. Only `slices.resources` creates places; other code only passes them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import msgspec

from . import spans
from .spans import Spans


class Grid(msgspec.Struct, frozen=True, array_like=True):
    """The devices `base + sum(i_k * strides_k)`, in row-major order of the index `i`."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def device(self, index: int) -> int:
        found = self.base
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            index, digit = divmod(index, extent)
            found += digit * stride
        return found

    def devices(self) -> Iterator[int]:
        if len(self.shape) == 1:
            yield from range(self.base, self.base + self.shape[0] * self.strides[0], self.strides[0])
            return
        for step in range(self.shape[0]):
            yield from Grid(self.base + step * self.strides[0], self.shape[1:], self.strides[1:]).devices()

    def runs(self) -> Iterator[tuple[int, int]]:
        """Return the devices as half-open ranges of consecutive ids, unsorted. Even a large grid has few ranges."""
        length, outer = 1, []
        for stride, extent in sorted((s, e) for s, e in zip(self.strides, self.shape, strict=True) if e > 1):
            if stride == length:
                length *= extent
            else:
                outer.append((stride, extent))
        starts = [self.base]
        for stride, extent in outer:
            starts = [start + step * stride for start in starts for step in range(extent)]
        return ((start, start + length) for start in starts)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """The physical devices of one slice, all on one island.

    Virtual device i is the i-th device of the grids, taken one grid after the other.
    """

    island: int
    grids: tuple[Grid, ...]

    @property
    def size(self) -> int:
        return sum(grid.size for grid in self.grids)

    def device(self, index: int) -> int:
        for grid in self.grids:
            if index < grid.size:
                return grid.device(index)
            index -= grid.size
        raise IndexError(index)

    def devices(self) -> Iterator[int]:
        for grid in self.grids:
            yield from grid.devices()


def line(island: int, first: int, size: int) -> Place:
    """Return the place of `size` consecutive devices."""
    return Place(island, (Grid(first, (size,), (1,)),))


@lru_cache(maxsize=4096)
def device_spans(place: Place) -> Spans:
    return spans.normal(run for grid in place.grids for run in grid.runs())

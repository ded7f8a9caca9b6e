"""Geometry of a torus of devices: from coordinates to device numbers, and the blocks that can hold a mesh.

Devices are numbered host by host. A host is a `block` of the torus. Hosts are row-major over the torus, and the
devices of a host are row-major over its block. A device's number is therefore a sum of one offset for each axis,
and a block of the torus is a few strides. *Cells* are the points of the torus, numbered row-major.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, combinations, permutations
from math import prod
from operator import add, mul

Shape = tuple[int, ...]


def unravel(index: int, shape: Shape) -> Shape:
    digits = []
    for extent in reversed(shape):
        index, digit = divmod(index, extent)
        digits.append(digit)
    return tuple(reversed(digits))


def offsets(torus: Shape, block: Shape, axis: int) -> list[int]:
    """Return, for each coordinate on the axis, what it adds to the number of a device."""
    hosts_inside = prod(t // b for t, b in zip(torus[axis + 1 :], block[axis + 1 :], strict=True))
    per_block = hosts_inside * prod(block)
    per_cell = prod(block[axis + 1 :])
    size = block[axis]
    return [at // size * per_block + at % size * per_cell for at in range(torus[axis])]


@lru_cache(maxsize=64)
def devices_by_cell(torus: Shape, block: Shape) -> tuple[int, ...]:
    found = [0]
    for axis in range(len(torus)):
        steps = offsets(torus, block, axis)
        found = [device + step for device in found for step in steps]
    return tuple(found)


def foldings(mesh: Shape, rank: int) -> list[Shape]:
    """Return every way to fold the mesh to at most `rank` axes by merging neighbouring axes into one.

    Axes of extent 1 are dropped first. A mesh that then has at most `rank` axes is the only result.
    """
    axes = tuple(extent for extent in mesh if extent > 1)
    if len(axes) <= rank:
        return [axes]
    cuts = combinations(range(1, len(axes)), rank - 1)
    return [tuple(prod(axes[low:high]) for low, high in zip((0, *cut), (*cut, len(axes)), strict=True)) for cut in cuts]


@lru_cache(maxsize=256)
def orientations(mesh: Shape, torus: Shape, cut: bool = True) -> tuple[tuple[Shape, tuple[int, ...]], ...]:
    """Return (folded mesh, torus axis of each of its axes) for every shape of block that fits the torus.

    Blocks that tile the torus come first, because they leave no remainders. If no block fits, axes of the mesh may be
    cut: 128 by 12 lies on a torus of 8 by 12 by 16 as 8 by 16 by 12.
    """
    rank = max(1, sum(size > 1 for size in torus))
    found = _fitting(foldings(mesh, rank), torus)
    if cut and not found:
        found = _fitting(cuttings(mesh, torus), torus)

    def rests(shape: Shape) -> int:
        return sum(size % extent > 0 for size, extent in zip(torus, shape, strict=True))

    return tuple(found[shape] for shape in sorted(found, key=rests))


def _fitting(foldings: Iterable[Shape], torus: Shape) -> dict[Shape, tuple[Shape, tuple[int, ...]]]:
    """Return (folded mesh, torus axis of each of its axes) by the shape of the block, for blocks that fit."""
    found: dict[Shape, tuple[Shape, tuple[int, ...]]] = {}
    for folded in foldings:
        for axes in permutations(range(len(torus)), len(folded)):
            if all(extent <= torus[axis] for extent, axis in zip(folded, axes, strict=True)):
                found.setdefault(extents(folded, axes, len(torus)), (folded, axes))
    return found


def cuttings(mesh: Shape, torus: Shape) -> list[Shape]:
    """Return every way to write the mesh with one axis for each of the torus, by cutting axes and merging parts.

    Devices keep their order, and the devices along any axis of the mesh stay a block. Those that fill most axes of the
    torus come first: a full axis may wrap.
    """
    inner = tuple(accumulate((extent for extent in reversed(mesh) if extent > 1), mul))  # sizes of blocks inside
    total, longest, sizes = prod(mesh), max(torus), [size for size in torus if size > 1]
    found: list[Shape] = []

    def extend(tail: Shape, inside: int) -> None:
        if inside == total:
            found.append(tail)
        elif len(tail) < len(sizes):
            for extent in range(2, min(longest, total // inside) + 1):
                block = inside * extent
                if total % block == 0 and all(block % one == 0 or one % block == 0 for one in inner):
                    extend((extent, *tail), block)

    extend((), 1)
    return sorted(found, key=lambda shape: -sum(extent in sizes for extent in shape))


def extents(folded: Shape, axes: tuple[int, ...], rank: int) -> Shape:
    """Return the extent of the block on each axis of the torus."""
    shape = [1] * rank
    for extent, axis in zip(folded, axes, strict=True):
        shape[axis] = extent
    return tuple(shape)


def starts(size: int, extent: int, wraps: bool) -> range:
    """Return the coordinates at which a block may start on an axis.

    A block that takes the whole axis starts at 0: any other start would only rotate it.
    """
    if extent == size:
        return range(1)
    return range(size) if wraps else range(size - extent + 1)


def hosts_touched(start: int, extent: int, size: int, block: int) -> int:
    """Return the number of hosts that a block touches along one axis."""
    return min(size // block, (start % block + extent - 1) // block + 1)


def sums(values: list[int], torus: Shape, extent: Shape) -> list[int]:
    """Return, for each cell, the sum of the values in the block that starts there (and wraps around)."""
    for axis, length in enumerate(extent):
        values = _sums_along(values, torus, axis, length)
    return values


def _sums_along(values: list[int], torus: Shape, axis: int, length: int) -> list[int]:
    """Return, for each cell, the sum over a window of this length along the axis."""
    # By doubling: a window of 6 is a window of 2 followed by one of 4. That takes few loops, all of them in C.
    total: list[int] | None = None
    power, width, done = values, 1, 0
    while True:
        if length & width:
            part = _turned(power, torus, axis, done)
            total = part if total is None else list(map(add, total, part))
            done += width
        if done == length:
            return total or []
        power = list(map(add, power, _turned(power, torus, axis, width)))
        width *= 2


def _turned(values: list[int], torus: Shape, axis: int, by: int) -> list[int]:
    """Return, for each cell, the value `by` cells further along the axis."""
    inside = prod(torus[axis + 1 :])
    span, cut = inside * torus[axis], inside * by
    if cut == 0:
        return values
    found: list[int] = []
    for low in range(0, len(values), span):
        found += values[low + cut : low + span]
        found += values[low : low + cut]
    return found

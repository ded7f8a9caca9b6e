"""Geometry of a torus: which device lies where, which blocks a mesh may take, and what each block costs.

Devices are numbered host by host; a host is a `block` of the torus, hosts are row-major over the torus, and
so are a host's devices over its block. A device's number is therefore a sum of one offset an axis, and a
block of the torus is a few strides. *Cells* are the torus's points, row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, permutations
from math import prod
from operator import add

Shape = tuple[int, ...]


def unravel(index: int, shape: Shape) -> Shape:
    digits = []
    for extent in reversed(shape):
        index, digit = divmod(index, extent)
        digits.append(digit)
    return tuple(reversed(digits))


def ravel(digits: Sequence[int], shape: Shape) -> int:
    index = 0
    for digit, extent in zip(digits, shape, strict=True):
        index = index * extent + digit
    return index


def offsets(torus: Shape, block: Shape, axis: int) -> list[int]:
    """By coordinate along the axis: what it adds to the number of a device."""
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
    """The mesh as it is, if the torus has as many axes; else every way to lay neighbouring axes end to end.

    Axes of extent 1 ask for nothing and are left out.
    """
    axes = tuple(extent for extent in mesh if extent > 1)
    if len(axes) <= rank:
        return [axes]
    cuts = combinations(range(1, len(axes)), rank - 1)
    return [
        tuple(prod(axes[low:high]) for low, high in zip((0, *cut), (*cut, len(axes)), strict=True))
        for cut in cuts
    ]


def orientations(mesh: Shape, torus: Shape) -> list[tuple[Shape, tuple[int, ...]]]:
    """(folded mesh, torus axis of each of its axes) for all that fit; one for each shape of block.

    Those that tile the torus come first: they leave no odd rests.
    """
    found: dict[Shape, tuple[Shape, tuple[int, ...]]] = {}
    rank = max(1, sum(size > 1 for size in torus))
    for folded in foldings(mesh, rank):
        for axes in permutations(range(len(torus)), len(folded)):
            if all(extent <= torus[axis] for extent, axis in zip(folded, axes, strict=True)):
                found.setdefault(extents(folded, axes, len(torus)), (folded, axes))
    rests = {
        shape: sum(size % extent > 0 for size, extent in zip(torus, shape, strict=True)) for shape in found
    }
    return [found[shape] for shape in sorted(found, key=rests.__getitem__)]


def extents(folded: Shape, axes: tuple[int, ...], rank: int) -> Shape:
    """Of the block, by axis of the torus."""
    shape = [1] * rank
    for extent, axis in zip(folded, axes, strict=True):
        shape[axis] = extent
    return tuple(shape)


def starts(size: int, extent: int, wraps: bool) -> range:
    """Where a block may begin along an axis; at 0 if it takes the whole axis, which other starts only
    turn."""
    if extent == size:
        return range(1)
    return range(size) if wraps else range(size - extent + 1)


def hosts_touched(start: int, extent: int, size: int, block: int) -> int:
    """Along one axis."""
    return min(size // block, (start % block + extent - 1) // block + 1)


def sums(values: list[int], torus: Shape, extent: Shape) -> list[int]:
    """By cell: the sum of the values in the block of that extent that starts there (and wraps around)."""
    for axis, length in enumerate(extent):
        values = _sums_along(values, torus, axis, length)
    return values


def _sums_along(values: list[int], torus: Shape, axis: int, length: int) -> list[int]:
    """By doubling: a window of 6 is one of 2 and, behind it, one of 4. So all are a few C loops over the
    cells."""
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
    """By cell: the value `by` cells further along the axis."""
    inside = prod(torus[axis + 1 :])
    span, cut = inside * torus[axis], inside * by
    if cut == 0:
        return values
    found: list[int] = []
    for low in range(0, len(values), span):
        found += values[low + cut : low + span]
        found += values[low : low + cut]
    return found

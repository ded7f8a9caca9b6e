"""Writes lists of devices as few grids, so that a place stays small whatever the size of its slice."""

from collections.abc import Iterable, Sequence

from ..model import Grid


def compact(devices: Iterable[int]) -> tuple[Grid, ...]:
    """Return the same devices in the same order, as few grids."""
    found: list[Grid] = _runs(devices)  # first consecutive devices, then equal grids at equal distances
    while True:
        fewer = _repeats(found)
        if len(fewer) == len(found):
            return tuple(tidy(grid) for grid in fewer)
        found = fewer


def product(axes: Sequence[Sequence[int]], base: int = 0) -> tuple[Grid, ...]:
    """Return the devices `base + axes[0][i] + axes[1][j] + ...`, in row-major order of (i, j, ...)."""
    if not axes:
        return (Grid(base, (1,), (1,)),)
    inner = product(axes[1:], base)
    if len(inner) > 1:  # the inner pattern cannot be one grid, so it is written once for each outer step
        return tuple(Grid(grid.base + offset, grid.shape, grid.strides) for offset in axes[0] for grid in inner)
    return tuple(
        tidy(Grid(outer.base + inner[0].base, (*outer.shape, *inner[0].shape), (*outer.strides, *inner[0].strides)))
        for outer in compact(axes[0])
    )


def tidy(grid: Grid) -> Grid:
    """Return the same grid in as few dimensions as possible, so that equal places compare equal."""
    shape: list[int] = []
    strides: list[int] = []
    for extent, stride in zip(reversed(grid.shape), reversed(grid.strides), strict=True):
        if extent == 1:
            continue
        if shape and stride == shape[-1] * strides[-1]:
            shape[-1] *= extent
        else:
            shape.append(extent)
            strides.append(stride)
    return Grid(grid.base, tuple(reversed(shape)) or (1,), tuple(reversed(strides)) or (1,))


def _runs(devices: Iterable[int]) -> list[Grid]:
    found: list[Grid] = []
    first = end = -1
    for device in devices:
        if device != end:
            if end > first:
                found.append(Grid(first, (end - first,), (1,)))
            first = device
        end = device + 1
    if end > first:
        found.append(Grid(first, (end - first,), (1,)))
    return found


def _repeats(found: list[Grid]) -> list[Grid]:
    """Merge consecutive grids of one shape with evenly spaced bases into one grid with one more dimension."""
    fewer: list[Grid] = []
    at = 0
    while at < len(found):
        head, count = found[at], 1
        gap = found[at + 1].base - head.base if at + 1 < len(found) else 0
        while at + count < len(found):
            grid = found[at + count]
            if grid.shape != head.shape or grid.strides != head.strides or grid.base != head.base + count * gap:
                break
            count += 1
        fewer.append(head if count == 1 else Grid(head.base, (count, *head.shape), (gap, *head.strides)))
        at += count
    return fewer

"""What joins the members of a group: rings and lines of links, found from where its devices really are.

A gang's place is a few strides, a group of it is a few more, and a torus numbers its devices host by host. So a
group is taken apart digit by digit into steps along the axes of the torus, without looking at its members.
Where that does not come out even (slices across the edge of a torus, moved devices), members are looked at.

Three cases, in this order:
- *box*: members are every combination of some coordinates along each axis. An axis is a ring if the torus
  wraps there and the members go evenly all the way round, and else a line.
- *ragged*: the members fill at least half of a box (100 devices, six rows of 16 and a bit): priced as that box.
- *scattered*: one ring through the members in their order, each step as long as the mean of all.
Without a torus a switch joins the members of a host, and the network the hosts.

Groups of a gang run their collectives all at once. Where they interleave they share links, and the devices of
one chip always do: an axis has the bandwidth that is left for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from core.model import Impossible, Island, Place, offsets

from .chips import Chip

Shape = tuple[int, ...]
Levels = tuple[tuple[int, int], ...]
Coordinates = tuple[Shape, ...]  # by axis: where there are members, ascending
Numbers = npt.NDArray[np.int64]


class Group(NamedTuple):
    """Members `first + sum(i_k * stride_k)` of the gang's logical devices, for all i_k below the k-th extent."""

    levels: Levels
    first: int = 0

    @property
    def size(self) -> int:
        return prod(extent for extent, _ in self.levels)

    def member(self, index: int) -> int:
        found = self.first
        for extent, stride in reversed(self.levels):
            index, digit = divmod(index, extent)
            found += digit * stride
        return found

    def members(self) -> Numbers:
        found = np.array([self.first], dtype=np.int64)
        for extent, stride in self.levels:
            found = np.add.outer(found, np.arange(extent, dtype=np.int64) * stride).ravel()
        return found


class Link(NamedTuple):
    bandwidth: float  # bytes a second one way
    latency: float  # nanoseconds


class Axis(NamedTuple):
    kind: Literal["ring", "line", "switch"]
    size: int
    bandwidth: float  # bytes a second that one device can send one way, while all groups of the gang do
    latency: float  # nanoseconds a step

    @property
    def ways(self) -> int:
        """From how many sides all members can receive: the ends of a line have one neighbour."""
        return 2 if self.kind == "ring" else 1

    @property
    def steps(self) -> int:
        """From a member to the furthest."""
        if self.kind == "switch":
            return (self.size - 1).bit_length()
        return self.size // 2 if self.kind == "ring" else self.size - 1


def groups_of(place: Place, levels: Levels) -> tuple[Group, ...]:
    """The first group of a gang and its last, which stand for all."""
    levels = levels or ((place.size, 1),)
    reach = sum((extent - 1) * stride for extent, stride in levels)
    if min(min(pair) for pair in levels) < 1 or reach >= place.size:
        raise Impossible(
            f"groups {levels} do not fit on the {place.size} devices of the gang: was the computation compiled "
            "for another number of devices?"
        )
    last = place.size - 1 - reach
    return (Group(levels),) if last == 0 else (Group(levels), Group(levels, last))


@lru_cache(maxsize=4096)
def axes_of(place: Place, group: Group, island: Island, chip: Chip) -> tuple[Axis, ...]:
    """Axes along which the group has one member only are left out."""
    if not island.torus:
        return _switched(place, group, island, chip)
    members = _coordinates(place, group, island)
    if members is None:
        return _scattered(place, group, island, chip)
    everything = tuple(tuple(range(size)) for size in island.torus)
    gang = _coordinates(place, Group(((place.size, 1),)), island) or everything
    return _on_torus(members, gang, island, chip)


def link(island: Island, chip: Chip) -> Link:
    """A hop: as the island states it, and else as the chip has it."""
    return Link(island.ici_bandwidth or chip.ici_bandwidth, island.ici_latency or chip.ici_latency)


def network(island: Island, chip: Chip) -> Link:
    """Between hosts that no torus joins: the chip's, and where it has none, as within a host."""
    if not chip.network_bandwidth:
        return link(island, chip)
    return Link(chip.network_bandwidth, chip.network_latency)


# --- where members are ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _coordinates(place: Place, group: Group, island: Island) -> Coordinates | None:
    """Of a box, or of the box around a ragged group; None if it is scattered."""
    found = _by_digits(place, group, island)
    if found is not None:
        return found
    points = _points(place, group, island)
    box = tuple(tuple(np.flatnonzero(np.bincount(along)).tolist()) for along in points)
    return box if group.size * 2 >= prod(map(len, box)) else None


def _by_digits(place: Place, group: Group, island: Island) -> Coordinates | None:
    if len(place.grids) > 1:
        return None
    grid = place.grids[0]
    in_grid = _digits(group.levels, group.first, grid.shape)
    if in_grid is None:
        return None
    numbers = [(extent, step * grid.strides[digit]) for extent, digit, step in in_grid]
    first = grid.device(group.first) + sum((extent - 1) * min(step, 0) for extent, step in numbers)
    upwards = [(extent, abs(step)) for extent, step in numbers]
    in_torus = _digits(upwards, first - island.base_device, (*_hosts(island), *island.block))
    if in_torus is None:
        return None
    rank = len(island.torus)
    found = [[start] for start in island.coords(first)]
    for extent, digit, step in in_torus:
        axis = digit % rank
        unit = step * (island.block[axis] if digit < rank else 1)
        found[axis] = [start + turn * unit for start in found[axis] for turn in range(extent)]
    return tuple(tuple(sorted(along)) for along in found)


def _digits(
    levels: Sequence[tuple[int, int]], first: int, radices: Shape
) -> list[tuple[int, int, int]] | None:
    """Strided levels over numbers of several digits, cut so that each steps through one: (extent, digit, step).

    None if some level would carry from one digit into the next.
    """
    found: list[tuple[int, int, int]] = []
    for extent, stride in levels:
        cut = _cut(extent, stride, radices)
        if cut is None:
            return None
        found += cut
    for at in range(len(radices)):
        top = first // prod(radices[at + 1 :]) % radices[at]
        if top + sum((extent - 1) * step for extent, digit, step in found if digit == at) >= radices[at]:
            return None
    return found


def _cut(extent: int, stride: int, radices: Shape) -> list[tuple[int, int, int]] | None:
    found: list[tuple[int, int, int]] = []
    weight = 1
    for digit in reversed(range(len(radices))):
        radix = radices[digit]
        if extent > 1 and stride < weight * radix:
            step, odd = divmod(stride, weight)
            inside = min(extent, -(-radix // step))
            if odd or extent % inside:
                return None
            found.append((inside, digit, step))
            extent, stride = extent // inside, stride * inside
        weight *= radix
    return found if extent == 1 else None


def _points(place: Place, group: Group, island: Island) -> list[Numbers]:
    """By axis: the coordinate of each member, in the order of the group."""
    numbers = _devices(place)
    if group.levels != ((place.size, 1),):
        numbers = numbers[group.members()]
    numbers = numbers - island.base_device
    return [along[numbers] for along in _by_number(island.torus, island.block)]


@lru_cache(maxsize=16)
def _by_number(torus: Shape, block: Shape) -> list[Numbers]:
    """By axis: the coordinate of each device of an island."""
    numbers = np.zeros((), dtype=np.int64)
    for axis in range(len(torus)):
        numbers = np.add.outer(numbers, np.array(offsets(torus, block, axis)))
    found = []
    for axis, size in enumerate(torus):
        along = np.empty(numbers.size, dtype=np.int64)
        along[numbers] = np.arange(size).reshape(-1, *(1,) * (len(torus) - axis - 1))
        found.append(along)
    return found


@lru_cache(maxsize=4)
def _devices(place: Place) -> Numbers:
    """In virtual order."""
    grids = {(grid.shape, grid.strides) for grid in place.grids}  # alike ones, many of them
    patterns = {one: Group(tuple(zip(*one, strict=True))).members() for one in grids}
    return np.concatenate([grid.base + patterns[grid.shape, grid.strides] for grid in place.grids])


def _hosts(island: Island) -> Shape:
    """By axis."""
    return tuple(size // block for size, block in zip(island.torus, island.block, strict=True))


# --- which links join them ------------------------------------------------------------------------------------


def _on_torus(members: Coordinates, gang: Coordinates, island: Island, chip: Chip) -> tuple[Axis, ...]:
    mine, theirs = _chips(members, chip), _chips(gang, chip)
    hop = link(island, chip)
    sharing = -(-len(gang[-1]) // len(theirs[-1]))  # devices of a chip that send at once
    hop = Link(hop.bandwidth / sharing, hop.latency)
    found = [
        _along(at, used, size if wraps else 0, hop)
        for at, used, size, wraps in zip(mine, theirs, _shape(island, chip), island.wraps, strict=True)
    ]
    together = -(-len(members[-1]) // len(mine[-1]))
    found.append(Axis("switch", together, chip.core_bandwidth, chip.core_latency))
    return tuple(axis for axis in found if axis.size > 1)


def _chips(along: Coordinates, chip: Chip) -> Coordinates:
    """Coordinates of chips, whose devices are neighbours on the last axis."""
    return (*along[:-1], tuple(sorted({at // chip.devices_per_chip for at in along[-1]})))


def _shape(island: Island, chip: Chip) -> Shape:
    """Of the torus, in chips."""
    return (*island.torus[:-1], -(-island.torus[-1] // chip.devices_per_chip))


def _along(at: Shape, used: Shape, around: int, hop: Link) -> Axis:
    """One axis: members at `at`, chips of the gang at `used`; `around` chips until it closes, 0 if it does not.

    Of the groups that interleave, each sends over all links between its members: so many share a link as there
    are chips of the gang from one member to the next.
    """
    count = len(at)
    if count == 1:
        return Axis("line", 1, *hop)
    first, length = at[0], at[-1] - at[0]
    if around:
        gaps = [after - before for before, after in zip(at, (*at[1:], at[0] + around), strict=True)]
        widest = max(gaps)
        if gaps.count(widest) > 1:  # nowhere in particular to cut it open
            share = max(1.0, len(used) / count)
            return Axis("ring", count, hop.bandwidth / share, hop.latency * around / count)
        first, length = at[(gaps.index(widest) + 1) % count], around - widest
    ahead = [(one - first) % around if around else one - first for one in used]
    between = sum(0 <= one < length for one in ahead)
    share = max(1.0, between / (count - 1))
    return Axis("line", count, hop.bandwidth / share, hop.latency * length / (count - 1))


def _scattered(place: Place, group: Group, island: Island, chip: Chip) -> tuple[Axis, ...]:
    points = _points(place, group, island)
    points[-1] = points[-1] // chip.devices_per_chip
    hops = np.zeros(group.size, dtype=np.int64)
    for at, size, wraps in zip(points, _shape(island, chip), island.wraps, strict=True):
        away = np.abs(at - np.roll(at, -1))
        hops += np.minimum(away, size - away) if wraps else away
    mean = max(1.0, float(hops.mean()))
    hop = link(island, chip)
    return (Axis("ring", group.size, hop.bandwidth / chip.devices_per_chip / mean, hop.latency * mean),)


def _switched(place: Place, group: Group, island: Island, chip: Chip) -> tuple[Axis, ...]:
    numbers = _devices(place)[group.members()] - island.base_device
    hosts = np.unique(numbers // island.per_host).size
    between = Axis("switch", hosts, *network(island, chip))
    within = Axis("switch", -(-group.size // hosts), *link(island, chip))
    return tuple(axis for axis in (between, within) if axis.size > 1)

"""Which links join the members of a collective's group: rings, lines and switches, from where its devices lie.

`axes_of` takes a gang's place, a group of its devices, the island and the chip. It returns the axes that `ici`
prices.

There are three cases on a torus, tried in this order:
- *box*: members are every combination of some coordinates along each axis. An axis is a ring if the torus
  wraps there and the members are spaced evenly all the way round; otherwise it is a line.
- *ragged*: the members fill at least half of a box (100 devices, six rows of 16 and a bit): priced as that box.
- *scattered*: one ring through the members in their order, each step as long as the mean step.
Without a torus, a switch joins the members on a host, and the network joins the hosts.

All groups of a gang run their collectives at the same time. Groups that interleave share links, and the devices of
one chip always do: the bandwidth of an axis is what one group gets.
"""

from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from core.model import Impossible, Island, Place, offsets

from .chips import Chip

Shape = tuple[int, ...]
Levels = tuple[tuple[int, int], ...]
Coordinates = tuple[Shape, ...]  # for each axis: the coordinates that have members, ascending
Numbers = npt.NDArray[np.int64]


class AxisGroup(NamedTuple):
    """Members `first + sum(i_k * stride_k)` of the gang's logical devices, for all i_k below the k-th extent."""

    levels: Levels
    first: int = 0

    @property
    def size(self) -> int:
        return prod(extent for extent, _ in self.levels)

    def members(self) -> Numbers:
        found = np.array([self.first], dtype=np.int64)
        for extent, stride in self.levels:
            found = np.add.outer(found, np.arange(extent, dtype=np.int64) * stride).ravel()
        return found


class IciLink(NamedTuple):
    bandwidth: float  # bytes a second one way
    latency: float  # nanoseconds


class Axis(NamedTuple):
    kind: Literal["ring", "line", "switch"]
    size: int
    # bytes a second that one device can send one way, while all groups of the gang communicate
    bandwidth: float
    latency: float  # nanoseconds for each step

    @property
    def ways(self) -> int:
        """From how many sides each member can receive at once; an end of a line has one neighbour."""
        return 2 if self.kind == "ring" else 1

    @property
    def steps(self) -> int:
        """Steps from a member to the furthest other member."""
        if self.kind == "switch":
            return (self.size - 1).bit_length()
        return self.size // 2 if self.kind == "ring" else self.size - 1


def groups_of(place: Place, levels: Levels) -> tuple[AxisGroup, ...]:
    """The first and the last group of a gang; they stand for all groups."""
    levels = levels or ((place.size, 1),)
    reach = sum((extent - 1) * stride for extent, stride in levels)
    if min(min(pair) for pair in levels) < 1 or reach >= place.size:
        raise Impossible(
            f"groups {levels} do not fit on the {place.size} devices of the gang: was the computation compiled "
            "for another number of devices?"
        )
    last = place.size - 1 - reach
    return (AxisGroup(levels),) if last == 0 else (AxisGroup(levels), AxisGroup(levels, last))


@lru_cache(maxsize=4096)
def axes_of(place: Place, group: AxisGroup, island: Island, chip: Chip) -> tuple[Axis, ...]:
    """The axes that join the members of a group, without those along which it has a single member."""
    if not island.torus:
        return _switched(place, group, island, chip)
    members = _coordinates(place, group, island)
    if members is None:
        return _scattered(place, group, island, chip)
    everything = tuple(tuple(range(size)) for size in island.torus)
    gang = _coordinates(place, AxisGroup(((place.size, 1),)), island) or everything
    return _on_torus(members, gang, island, chip)


def link(island: Island, chip: Chip) -> IciLink:
    """A hop over ICI: the island's own figures where it states them, otherwise the chip's."""
    return IciLink(island.ici_bandwidth or chip.ici_bandwidth, island.ici_latency or chip.ici_latency)


def network(island: Island, chip: Chip) -> IciLink:
    """A hop between hosts that no torus joins: the chip's network, or where it has none, the link within a host."""
    if not chip.network_bandwidth:
        return link(island, chip)
    return IciLink(chip.network_bandwidth, chip.network_latency)


# --- where the members lie ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _coordinates(place: Place, group: AxisGroup, island: Island) -> Coordinates | None:
    """The coordinates of a box, or of the box around a ragged group; None if the group is scattered."""
    points = _points(place, group, island)
    box = tuple(tuple(np.flatnonzero(np.bincount(along)).tolist()) for along in points)
    return box if group.size * 2 >= prod(map(len, box)) else None


def _points(place: Place, group: AxisGroup, island: Island) -> list[Numbers]:
    """For each axis: the coordinates of the members, in the order of the group."""
    numbers = _devices(place)
    if group.levels != ((place.size, 1),):
        numbers = numbers[group.members()]
    numbers = numbers - island.base_device
    return [along[numbers] for along in _by_number(island.torus, island.block)]


@lru_cache(maxsize=16)
def _by_number(torus: Shape, block: Shape) -> list[Numbers]:
    """For each axis: the coordinate of each device of an island."""
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
    """The physical devices of a place, in virtual order."""
    grids = {(grid.shape, grid.strides) for grid in place.grids}  # most grids have the same shape and strides
    patterns = {one: AxisGroup(tuple(zip(*one, strict=True))).members() for one in grids}
    return np.concatenate([grid.base + patterns[grid.shape, grid.strides] for grid in place.grids])


# --- which links join the members ---------------------------------------------------------------------------------


def _on_torus(members: Coordinates, gang: Coordinates, island: Island, chip: Chip) -> tuple[Axis, ...]:
    mine, theirs = _chips(members, chip), _chips(gang, chip)
    hop = link(island, chip)
    sharing = -(-len(gang[-1]) // len(theirs[-1]))  # devices of one chip that send at the same time
    hop = IciLink(hop.bandwidth / sharing, hop.latency)
    found = [
        _along(at, used, size if wraps else 0, hop)
        for at, used, size, wraps in zip(mine, theirs, _shape(island, chip), island.wraps, strict=True)
    ]
    together = -(-len(members[-1]) // len(mine[-1]))
    found.append(Axis("switch", together, chip.core_bandwidth, chip.core_latency))
    return tuple(axis for axis in found if axis.size > 1)


def _chips(along: Coordinates, chip: Chip) -> Coordinates:
    """Coordinates of the chips; a chip's devices are neighbours on the last axis."""
    return (*along[:-1], tuple(sorted({at // chip.devices_per_chip for at in along[-1]})))


def _shape(island: Island, chip: Chip) -> Shape:
    """The shape of the torus, in chips."""
    return (*island.torus[:-1], -(-island.torus[-1] // chip.devices_per_chip))


def _along(at: Shape, used: Shape, around: int, hop: IciLink) -> Axis:
    """One axis: the group has members at `at`, the gang has chips at `used`; the axis closes after `around` chips,
    or not at all if that is 0.

    Interleaved groups each send over all links between their members. So as many groups share a link as the gang has
    chips from one member to the next.
    """
    count = len(at)
    if count == 1:
        return Axis("line", 1, *hop)
    first, length = at[0], at[-1] - at[0]
    if around:
        gaps = [after - before for before, after in zip(at, (*at[1:], at[0] + around), strict=True)]
        widest = max(gaps)
        if gaps.count(widest) > 1:  # the gaps are alike: no place at which to cut the ring open
            share = max(1.0, len(used) / count)
            return Axis("ring", count, hop.bandwidth / share, hop.latency * around / count)
        first, length = at[(gaps.index(widest) + 1) % count], around - widest
    ahead = [(one - first) % around if around else one - first for one in used]
    between = sum(0 <= one < length for one in ahead)
    share = max(1.0, between / (count - 1))
    return Axis("line", count, hop.bandwidth / share, hop.latency * length / (count - 1))


def hops_to_next(place: Place, group: AxisGroup, island: Island, chip: Chip) -> Numbers:
    """For each member: the hops on the torus from its chip to the next member's, and from the last to the first."""
    points = _points(place, group, island)
    points[-1] = points[-1] // chip.devices_per_chip
    hops = np.zeros(group.size, dtype=np.int64)
    for at, size, wraps in zip(points, _shape(island, chip), island.wraps, strict=True):
        away = np.abs(at - np.roll(at, -1))
        hops += np.minimum(away, size - away) if wraps else away
    return hops


def _scattered(place: Place, group: AxisGroup, island: Island, chip: Chip) -> tuple[Axis, ...]:
    mean = max(1.0, float(hops_to_next(place, group, island, chip).mean()))
    hop = link(island, chip)
    return (Axis("ring", group.size, hop.bandwidth / chip.devices_per_chip / mean, hop.latency * mean),)


def hosts_joined(place: Place, group: AxisGroup, island: Island) -> int:
    """On how many hosts the members are."""
    return np.unique((_devices(place)[group.members()] - island.base_device) // island.devices_per_host).size


def _switched(place: Place, group: AxisGroup, island: Island, chip: Chip) -> tuple[Axis, ...]:
    hosts = hosts_joined(place, group, island)
    between = Axis("switch", hosts, *network(island, chip))
    within = Axis("switch", -(-group.size // hosts), *link(island, chip))
    return tuple(axis for axis in (between, within) if axis.size > 1)

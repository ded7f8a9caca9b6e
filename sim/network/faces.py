"""Which links of a torus one host turns to another: those of all its chips on that side."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from core.model import Island


class Face(NamedTuple):
    """One side of a host. `links`: how many chips have a link there."""

    axis: int
    upwards: bool
    links: int


def face_to(island: Island, devices_per_chip: int, sender: int, receiver: int) -> Face:
    """The side by which contents leave, on the way along the first axis on which the two hosts differ."""
    hosts = tuple(size // part for size, part in zip(island.torus, island.block, strict=True))
    here, there = (_at(island, host) for host in (sender, receiver))
    axis = next(number for number, (one, other) in enumerate(zip(here, there, strict=True)) if one != other)
    ahead = (there[axis] - here[axis]) % hosts[axis]
    upwards = 2 * ahead <= hosts[axis] if island.wraps[axis] else there[axis] > here[axis]
    chips = (*island.block[:-1], -(-island.block[-1] // devices_per_chip))
    return Face(axis, upwards, prod(chips) // chips[axis])


def _at(island: Island, host: int) -> tuple[int, ...]:
    """Where a host lies among the hosts."""
    first = island.coords(island.base_device + (host - island.base_host) * island.devices_per_host)
    return tuple(at // part for at, part in zip(first, island.block, strict=True))

"""Collectives on small tori, simulated in rounds with real contents, for comparison with the formulas.

In a round every link carries, in each direction, what its device received from the device behind it in the round
before. A round takes one latency and the time of the fullest link. On a ring of even size, the furthest contents are
halved, and the halves meet half way round from both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod

Device = tuple[int, ...]
Held = Counter[Device]  # from which device, and how many halves of its share: 2 is all of it


class Torus:
    def __init__(self, dims: tuple[int, ...], wraps: tuple[bool, ...]) -> None:
        self.dims, self.wraps = dims, wraps
        self.devices = list(product(*map(range, dims)))

    def neighbour(self, device: Device, axis: int, way: int) -> Device | None:
        at = device[axis] + way
        if not self.wraps[axis] and not 0 <= at < self.dims[axis]:
            return None
        return (*device[:axis], at % self.dims[axis], *device[axis + 1 :])

    def rounds(self, axis: int) -> int:
        size = self.dims[axis]
        return size // 2 if self.wraps[axis] else size - 1


def all_gather(torus: Torus, share: int, bandwidth: Fraction, latency: int) -> Fraction:
    """Return the nanoseconds until all devices have everything, where each begins with `share` bytes.

    The data are split into as many equal parts as there are axes. Part p takes the axes in the order p, p+1, ..., and
    all parts move in step.
    """
    rank = len(torus.dims)
    held = [{device: Counter({device: 2}) for device in torus.devices} for _ in range(rank)]
    time = Fraction(0)
    for phase in range(rank):
        axes = [(part + phase) % rank for part in range(rank)]
        runs = [_along(torus, axis, part) for axis, part in zip(axes, held, strict=True)]
        for _ in range(max(map(torus.rounds, axes))):
            loads = [next(run, 0) for run in runs]  # no two parts are on one axis
            time += latency + Fraction(max(loads), 2) * Fraction(share, rank) / bandwidth
    everything = Counter(dict.fromkeys(torus.devices, 2))
    assert all(found == everything for part in held for found in part.values())
    return time


def _along(torus: Torus, axis: int, held: dict[Device, Held]) -> Iterator[int]:
    """Return, for each round, the number of half shares on the fullest link. Arrivals are added to `held`."""
    size, last = torus.dims[axis], torus.rounds(axis)
    moving = {(device, way): held[device].copy() for device in torus.devices for way in (1, -1)}
    for step in range(1, last + 1):
        half = torus.wraps[axis] and size % 2 == 0 and step == last
        arrived: dict[tuple[Device, int], Held] = {}
        fullest = 0
        for (device, way), content in moving.items():
            other = torus.neighbour(device, axis, way)
            if other is None or not content:
                continue
            sent = Counter({of: much // 2 for of, much in content.items()}) if half else content
            fullest = max(fullest, sent.total())
            arrived[other, way] = sent
        for (device, _), content in arrived.items():
            held[device].update(content)
        moving = arrived
        yield fullest


def busiest_link_of_all_to_all(torus: Torus) -> Fraction:
    """Return the busiest link's load one way, in units of what one device holds.

    Each device sends evenly to all, axis by axis and the shorter way round; half each way if both ways are equally
    long.
    """
    load: dict[tuple[Device, int, int], Fraction] = {}
    piece = Fraction(1, prod(torus.dims))
    for source, target in product(torus.devices, repeat=2):
        at = source
        for axis, size in enumerate(torus.dims):
            for way, much in _ways(torus, axis, at[axis], target[axis]):
                here = at
                while here[axis] != target[axis]:
                    key = (here, axis, way)
                    load[key] = load.get(key, Fraction(0)) + piece * much
                    here = (*here[:axis], (here[axis] + way) % size, *here[axis + 1 :])
            at = (*at[:axis], target[axis], *at[axis + 1 :])
    return max(load.values())


def _ways(torus: Torus, axis: int, here: int, there: int) -> list[tuple[int, Fraction]]:
    if not torus.wraps[axis]:
        return [(1 if there > here else -1, Fraction(1))]
    size = torus.dims[axis]
    up, down = (there - here) % size, (here - there) % size
    if up == down:
        return [(1, Fraction(1, 2)), (-1, Fraction(1, 2))]
    return [(1 if up < down else -1, Fraction(1))]

"""Chooses the devices of a slice: pure functions from the free devices and their load to a place.

A *packed* slice takes the fewest hosts; if it has a mesh and the island is a torus, it takes one contiguous block. A
*spread* slice takes one device of each host, then a second of each, and so on. Among equal choices the least loaded
one wins: the one with fewest devices of the highest load, then with fewest of the second highest, and so on. That is
one sum, if a device of a higher load costs more than all devices of lower loads together. If the sums are equal too,
the lowest device number wins. A mesh only orders the devices, except on a torus, where its neighbours are neighbours.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import msgspec

from ..model import (
    Grid,
    Island,
    Place,
    Shape,
    SliceSpec,
    devices_by_cell,
    extents,
    hosts_touched,
    offsets,
    orientations,
    starts,
    sums,
    unravel,
)
from .grids import compact, product

Offer = list[tuple[int, int]]  # the usable devices of one host as (cost, number), least loaded first
Free = tuple[Island, Sequence[int], Sequence[int]]  # an island; by device from its base: whether usable, load


class Choice(msgspec.Struct, frozen=True):
    place: Place
    hosts: int  # number of hosts
    cost: int  # sum over its devices


def choose(spec: SliceSpec, free: Sequence[Free]) -> Place | None:
    """Return the best place on any of these islands, or None if the slice fits on none.

    Packed slices take the island with the lowest cost, spread slices the one with most hosts.
    """
    levels = sorted({level for _, _, load in free for level in set(load)})
    scale = 1 + max((island.devices for island, _, _ in free), default=0)
    weight = {level: scale**rank for rank, level in enumerate(levels)}
    best: Choice | None = None
    for island, usable, load in free:
        if sum(usable) < spec.devices:
            continue
        costs = [weight[level] for level in load]
        found = _on_island(spec, island, usable, costs, scale ** len(levels))
        if found and (best is None or _rank(spec, found) < _rank(spec, best)):
            best = found
    return best.place if best else None


def fits(island: Island, spec: SliceSpec) -> bool:
    """Whether the slice would fit on this island if all regular hosts were up and had no slices."""
    if spec.island not in ("", island.name) or spec.kind not in ("", island.kind):
        return False
    if spec.devices > island.regular * island.devices_per_host:
        return False
    if not wants_block(island, spec):
        return True
    return _room_for_block(island.torus, island.wraps, island.block, island.regular, spec.mesh)


def wants_block(island: Island, spec: SliceSpec) -> bool:
    return bool(island.torus) and spec.layout == "packed" and len(spec.mesh) >= 2


def _rank(spec: SliceSpec, choice: Choice) -> tuple[int, ...]:
    spread = spec.layout == "spread"
    return (-choice.hosts, choice.cost) if spread else (choice.cost, choice.hosts)


def _on_island(spec: SliceSpec, island: Island, usable: Sequence[int], costs: list[int], barred: int) -> Choice | None:
    if wants_block(island, spec):
        return _block(spec, island, usable, costs, barred)
    devices_per_host = island.devices_per_host
    offers: list[Offer] = [
        sorted((costs[at], at) for at in range(low, low + devices_per_host) if usable[at])
        for low in range(0, len(costs), devices_per_host)
    ]
    taken = (_spread if spec.layout == "spread" else _packed)(spec.devices, offers)
    devices = sorted(island.base_device + at for _, at in taken)
    hosts = len({at // devices_per_host for _, at in taken})
    return Choice(Place(island.index, compact(devices)), hosts, sum(cost for cost, _ in taken))


# --- by count -----------------------------------------------------------------------------------------------


def _packed(need: int, offers: list[Offer]) -> Offer:
    """Take devices of as few hosts as possible.

    Among such choices, first minimise the highest cost of a device. Then prefer the hosts that offer most devices,
    and then those with the lowest cost.
    """
    count = _hosts_needed(need, offers)
    peaks = sorted({cost for offer in offers for cost, _ in offer})
    peak = peaks[bisect_left(peaks, True, key=lambda top: _enough(need, count, _below(offers, top)))]
    offers = _below(offers, peak)
    costs = [sum(cost for cost, _ in offer) for offer in offers]
    order = sorted(range(len(offers)), key=lambda host: (-len(offers[host]), costs[host], host))
    taken = [device for host in order[: count - 1] for device in offers[host]]
    rest = need - len(taken)
    large_enough = [offers[host] for host in sorted(order[count - 1 :]) if len(offers[host]) >= rest]
    cheapest = min(large_enough, key=lambda offer: sum(cost for cost, _ in offer[:rest]))
    taken += cheapest
    return sorted(taken)[:need]


def _hosts_needed(need: int, offers: list[Offer]) -> int:
    given = accumulate(sorted(map(len, offers), reverse=True))
    return next(count for count, total in enumerate(given, 1) if total >= need)


def _enough(need: int, count: int, offers: list[Offer]) -> bool:
    return sum(sorted(map(len, offers), reverse=True)[:count]) >= need


def _below(offers: list[Offer], peak: int) -> list[Offer]:
    return [offer if not offer or offer[-1][0] <= peak else _cut(offer, peak) for offer in offers]


def _cut(offer: Offer, peak: int) -> Offer:
    return [device for device in offer if device[0] <= peak]


def _spread(need: int, offers: list[Offer]) -> Offer:
    """Take the next device of each host, in rounds.

    In the last round, the least loaded devices are taken; among equal ones those whose hosts have the lowest cost.
    """
    costs = [sum(cost for cost, _ in offer) for offer in offers]
    taken: Offer = []
    round_ = 0
    while len(taken) < need:
        given = [(offer[round_], cost) for offer, cost in zip(offers, costs, strict=True) if len(offer) > round_]
        rest = need - len(taken)
        if len(given) > rest:
            given.sort(key=lambda one: (one[0][0], one[1], one[0][1]))
        taken += [device for device, _ in given[:rest]]
        round_ += 1
    return taken


# --- as a block of the torus --------------------------------------------------------------------------------


def _block(spec: SliceSpec, island: Island, usable: Sequence[int], costs: list[int], barred: int) -> Choice | None:
    torus = island.torus
    cells = devices_by_cell(torus, island.block)
    values = [costs[at] if usable[at] else barred for at in cells]
    # the cost of each device, if all are equal
    even = values[0] if values.count(values[0]) == len(values) else 0
    best: tuple[int, int, int] | None = None  # hosts, cost, cell
    chosen: tuple[Shape, tuple[int, ...]] = ((), ())
    for folded, axes in orientations(spec.mesh, torus):
        shape = extents(folded, axes, len(torus))
        found = (_hosts_at(island, shape), spec.devices * even, 0) if even else _cheapest(island, shape, values, barred)
        if found[1] < barred and (best is None or found[:2] < best[:2]):
            best, chosen = found, (folded, axes)
    if best is None:
        return None
    start = unravel(best[2], torus)
    return Choice(Place(island.index, _grids(island, *chosen, start)), best[0], best[1])


def _hosts_at(island: Island, shape: Shape) -> int:
    """Return the number of hosts that a block at the origin touches. At no other place does it touch fewer."""
    return prod(hosts_touched(0, *each) for each in zip(shape, island.torus, island.block, strict=True))


def _cheapest(island: Island, shape: Shape, values: list[int], barred: int) -> tuple[int, int, int]:
    """Return (hosts, cost, first cell) of the best block of this shape.

    Its cost is at least `barred` if every block of this shape has a barred cell.
    """
    torus = island.torus
    totals = sums(values, torus, shape)
    firsts, hosts = [0], [1]
    for axis, extent in enumerate(shape):
        size, block = torus[axis], island.block[axis]
        begin = starts(size, extent, island.wraps[axis])
        touched = [hosts_touched(at, extent, size, block) for at in begin]
        firsts = [first * size + at for first in firsts for at in begin]
        hosts = [count * more for count in hosts for more in touched]
    keys = zip(hosts, [totals[first] for first in firsts], firsts, strict=True)
    return min(keys, key=lambda key: (key[1] >= barred, key))


def _grids(island: Island, folded: Shape, axes: tuple[int, ...], start: Shape) -> tuple[Grid, ...]:
    """Return the block's devices in the order of the mesh. Its axis k lies along axis `axes[k]` of the torus."""
    torus = island.torus
    steps = [offsets(torus, island.block, axis) for axis in range(len(torus))]
    base = island.base_device
    base += sum(steps[axis][start[axis]] for axis in range(len(torus)) if axis not in axes)
    lists = [
        [steps[axis][(start[axis] + at) % torus[axis]] for at in range(extent)]
        for extent, axis in zip(folded, axes, strict=True)
    ]
    return product(lists, base)


@lru_cache(maxsize=1024)
def _room_for_block(torus: Shape, wraps: tuple[bool, ...], block: Shape, regular: int, mesh: Shape) -> bool:
    """Whether a block for this mesh fits in the torus without touching the spare hosts."""
    shapes = [extents(folded, axes, len(torus)) for folded, axes in orientations(mesh, torus)]
    regular_devices = regular * prod(block)
    cells = devices_by_cell(torus, block)
    if regular_devices == len(cells) or not shapes:
        return bool(shapes)
    spare = [int(at >= regular_devices) for at in cells]  # spares are part of the torus: try every position
    for shape in shapes:
        firsts = [0]
        for size, extent, wrap in zip(torus, shape, wraps, strict=True):
            firsts = [first * size + at for first in firsts for at in starts(size, extent, wrap)]
        totals = sums(spare, torus, shape)
        if any(totals[first] == 0 for first in firsts):
            return True
    return False

"""Best fit against brute force on tiny tori: a free, contiguous block with the fewest free devices beside it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from core.model import Cluster, Island, SliceSpec
from core.schedule.policy import BestFit, IslandUse, SliceUse
from core.schedule.policy.best_fit import best_block
from core.slices.placing import choose
from tests.core.relocation.test_moves import where
from tests.core.relocation.test_placements import Client, begun, drain
from tests.laws import examples

Cell = tuple[int, ...]
Box = frozenset[Cell]


def drawn_island(rng: Random) -> Island:
    block = tuple(rng.choice((1, 1, 2)) for _ in range(rng.randint(1, 3)))
    torus = tuple(size * rng.choice((1, 2, 3) if size == 1 else (1, 2)) for size in block)
    wraps = tuple(rng.random() < 0.5 for _ in torus)
    here = Island(
        name="b", hosts=prod(torus) // prod(block), devices_per_host=prod(block), torus=torus, wraps=wraps, block=block
    )
    return Cluster((Island(name="a", hosts=1, devices_per_host=3), here)).islands[1]


def boxes(island: Island, devices: int, mesh: tuple[int, ...]) -> Iterator[Box]:
    """All blocks of so many devices; with a mesh, those of its shape, however it is turned."""
    for shape in product(*[range(1, size + 1) for size in island.torus]):
        wanted = sorted(extent for extent in mesh if extent > 1)
        if prod(shape) != devices or (mesh and sorted(extent for extent in shape if extent > 1) != wanted):
            continue
        for start in product(*map(range, island.torus)):
            ends = [at + extent for at, extent in zip(start, shape, strict=True)]
            if all(end <= size or wrap for end, size, wrap in zip(ends, island.torus, island.wraps, strict=True)):
                sides = [[at % size for at in range(low, end)]
                         for low, end, size in zip(start, ends, island.torus, strict=True)]  # fmt: skip
                yield frozenset(product(*sides))


def beside(island: Island, box: Box, free: set[Cell]) -> int:
    """How many free devices are one step away from the box."""
    found = set()
    for cell in box:
        for axis, (size, wrap) in enumerate(zip(island.torus, island.wraps, strict=True)):
            for at in (cell[axis] - 1, cell[axis] + 1):
                if wrap or 0 <= at < size:
                    found.add((*cell[:axis], at % size, *cell[axis + 1 :]))
    return len((found - box) & free)


def use_of(devices: int, mesh: tuple[int, ...] = ()) -> SliceUse:
    return SliceUse(1, "s", devices, True, 1, 0, mesh=mesh)


@given(st.integers(0, 1 << 32).map(Random))
@examples(200)
def test_no_free_block_has_fewer_free_devices_beside_it(rng: Random) -> None:
    island = drawn_island(rng)
    every = range(island.base_device, island.base_device + island.devices)
    taken = rng.choice((0.1, 0.3, 0.6))
    free = [device for device in every if rng.random() >= taken]
    cells = {island.coords(device) for device in free}
    flat = sum(size > 1 for size in island.torus) < 2  # a mesh would be folded
    mesh = () if flat or rng.random() < 0.5 else (rng.randint(1, 3), rng.randint(1, 3))
    devices = prod(mesh) if mesh else rng.randint(1, 6)
    found = best_block(use_of(devices, mesh), IslandUse(island, lambda index: free))
    could = [box for box in boxes(island, devices, mesh) if box <= cells]
    if found is None:
        assert not could
        return
    count, _, chosen = found
    box = frozenset(map(island.coords, chosen))
    assert len(chosen) == devices
    assert box in could
    assert count == beside(island, box, cells) == min(beside(island, each, cells) for each in could)


@given(st.integers(0, 1 << 32).map(Random))
@examples(100)
def test_its_devices_are_in_the_order_that_the_mesh_has_there_anyway(rng: Random) -> None:
    island = drawn_island(rng)
    mesh = tuple(rng.randint(1, 3) for _ in range(rng.randint(2, 3)))
    every = range(island.base_device, island.base_device + island.devices)
    found = best_block(use_of(prod(mesh), mesh), IslandUse(island, lambda index: every))
    if found is not None:
        usable = [int(device in found[2]) for device in every]
        place = choose(SliceSpec("s", prod(mesh), mesh), [(island, usable, [0] * island.devices)])
        assert place is not None
        assert list(place.devices()) == list(found[2])


def test_any_devices_will_do_where_there_is_no_torus() -> None:
    (island,) = Cluster((Island(name="a", hosts=2, devices_per_host=2),)).islands
    at = IslandUse(island, lambda index: [0, 3])
    assert best_block(use_of(2), at) == (0, 0, ())
    assert best_block(use_of(3), at) is None


def test_a_slice_goes_to_the_island_where_it_fills_a_hole() -> None:
    wide = Island(name="wide", hosts=2, devices_per_host=4, torus=(2, 4))
    made = begun(BestFit, wide, Island(name="tight", hosts=1, devices_per_host=4, torus=(2, 2)))
    made.run_for(1_000_000_000)  # their hosts come
    assert where(made, Client(made, "a", 4).ran().results[0]) == [8, 9, 10, 11]
    drain(made)

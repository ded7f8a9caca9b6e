"""Laws of `placing`, each checked against a brute-force oracle on tiny islands."""

from __future__ import annotations

from itertools import combinations, permutations
from itertools import product as every
from math import prod
from typing import Literal

from hypothesis import assume, given
from hypothesis import strategies as st

from core.model.program import SliceSpec
from core.model.topology import Cluster, Island
from core.model.torus import orientations
from core.slices.placing import choose, fits
from core.slices.refusal_texts import nearest, sound
from tests.coordinates import device_at
from tests.laws import examples

Cell = tuple[int, ...]
LAYOUTS: list[Literal["packed", "spread"]] = ["packed", "spread"]


def island_of(**fields: object) -> Island:
    """Return an island that comes after another one, so that a number counted from the wrong base shows."""
    other = Island(name="other", kind="other", hosts=1, devices_per_host=3)
    return Cluster((other, Island(name="t", **fields))).islands[1]  # type: ignore[arg-type]


@st.composite
def tori(draw: st.DrawFn, cells: int = 24) -> Island:
    rank = draw(st.integers(1, 3))
    block = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    hosts = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    torus = tuple(b * h for b, h in zip(block, hosts, strict=True))
    assume(prod(torus) <= cells)
    wraps = tuple(draw(st.booleans()) for _ in range(rank))
    spares = draw(st.integers(0, prod(hosts) - 1)) if draw(st.booleans()) else 0
    return island_of(
        hosts=prod(hosts), devices_per_host=prod(block), torus=torus, block=block, wraps=wraps, spares=spares
    )


@st.composite
def tiny(draw: st.DrawFn) -> Island:
    return island_of(hosts=draw(st.integers(1, 4)), devices_per_host=draw(st.integers(1, 3)))


def meshes(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 4), min_size=2, max_size=max(2, rank)).map(tuple)


def mesh_spec(mesh: tuple[int, ...]) -> SliceSpec:
    return SliceSpec("s", prod(mesh), mesh)


# --- oracles ------------------------------------------------------------------------------------------------


def blocks(island: Island, mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return every contiguous block for the mesh, as devices in its order; or if there is none, for the mesh cut."""
    return uncut(island, mesh) or [block for one in cut(mesh, island.torus) for block in uncut(island, one)]


def cut(mesh: tuple[int, ...], torus: Cell) -> list[tuple[int, ...]]:
    """Return every mesh with the axes of the torus that lists the devices of each row of this mesh one by one."""
    sizes = [n for n in range(1, prod(mesh) + 1) if prod(mesh) % n == 0]
    rows = [prod(mesh[at:]) for at in range(len(mesh))]

    def keeps_rows(one: tuple[int, ...]) -> bool:
        own = [prod(one[at:]) for at in range(len(one))]
        return all(max(pair) % min(pair) == 0 for pair in every(rows, own))

    return [one for one in every(*[sizes] * len(torus)) if prod(one) == prod(mesh) and keeps_rows(one)]


def uncut(island: Island, mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return every contiguous block whose axes are those of the mesh, computed from coordinates."""
    axes = [extent for extent in mesh if extent > 1]
    found = []
    for lie in permutations(range(len(island.torus)), len(axes)):
        for start in every(*map(range, island.torus)):
            devices = [shifted(island, start, lie, digits) for digits in every(*map(range, axes))]
            known = [device for device in devices if device is not None]
            if len(set(known)) == len(devices):
                found.append(tuple(known))
    return found


def shifted(island: Island, start: Cell, lie: Cell, digits: Cell) -> int | None:
    at = list(start)
    for axis, digit in zip(lie, digits, strict=True):
        at[axis] += digit
        if at[axis] >= island.torus[axis]:
            if not island.wraps[axis]:
                return None
            at[axis] -= island.torus[axis]
            if at[axis] >= start[axis]:
                return None  # it wraps around and overlaps itself
    return device_at(island, tuple(at))


def neighbours(island: Island, one: int, other: int) -> bool:
    apart = [
        min((a - b) % size, (b - a) % size) if wrap else abs(a - b)
        for a, b, size, wrap in zip(island.coords(one), island.coords(other), island.torus, island.wraps, strict=True)
    ]
    return sum(apart) == 1


def weighed(island: Island, load: list[int], devices: tuple[int, ...]) -> tuple[int, list[int]]:
    """Return (number of hosts, loads from the highest down): of two choices, the one that compares less is better."""
    hosts = len({island.host_of(device) for device in devices})
    return hosts, sorted((load[device - island.base_device] for device in devices), reverse=True)


@st.composite
def used(draw: st.DrawFn, island: Island, gaps: bool = True) -> tuple[list[int], list[int]]:
    """Draw which devices may be taken, and the load of each."""
    count = island.devices
    usable = draw(st.lists(st.sampled_from([1, 1, 1, 0] if gaps else [1]), min_size=count, max_size=count))
    load = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return usable, load


def may(island: Island, usable: list[int], devices: tuple[int, ...]) -> bool:
    return all(usable[device - island.base_device] for device in devices)


# --- a mesh on a torus --------------------------------------------------------------------------------------


@given(st.data(), tori())
@examples(150)
def test_a_mesh_gets_the_best_block_there_is(data: st.DataObject, island: Island) -> None:
    mesh = data.draw(meshes(len(island.torus)))
    assume(sum(extent > 1 for extent in mesh) <= max(1, sum(size > 1 for size in island.torus)))
    usable, load = data.draw(used(island))
    place = choose(mesh_spec(mesh), [(island, usable, load)])
    able = [devices for devices in blocks(island, mesh) if may(island, usable, devices)]
    assert (place is None) == (not able)
    if place:
        devices = tuple(place.devices())
        assert devices in able
        assert weighed(island, load, devices) == min(weighed(island, load, other) for other in able)


@given(st.data(), tori())
@examples(80)
def test_neighbours_in_the_mesh_are_neighbours_on_the_torus(data: st.DataObject, island: Island) -> None:
    mesh = data.draw(meshes(len(island.torus)))
    assume(sum(extent > 1 for extent in mesh) <= max(1, sum(size > 1 for size in island.torus)))
    assume(orientations(mesh, island.torus, cut=False))
    usable, load = data.draw(used(island))
    place = choose(mesh_spec(mesh), [(island, usable, load)])
    assume(place is not None)
    assert place is not None
    devices = list(place.devices())
    indices = list(every(*map(range, mesh)))
    for axis in range(len(mesh)):
        for at, index in enumerate(indices):
            if index[axis] + 1 < mesh[axis]:
                beside = (*index[:axis], index[axis] + 1, *index[axis + 1 :])
                assert neighbours(island, devices[at], devices[indices.index(beside)])


def test_a_mesh_of_more_axes_than_the_torus_shares_axes() -> None:
    """It is still one block: the last two axes of the mesh share one axis of the torus."""
    island = island_of(hosts=4, devices_per_host=4, torus=(4, 4), block=(2, 2))
    place = choose(SliceSpec("s", 8, (2, 2, 2)), [(island, [1] * 16, [0] * 16)])
    assert place is not None
    assert [island.coords(device) for device in place.devices()] == [(x, y) for x in range(2) for y in range(4)]


def test_a_mesh_with_longer_axes_than_the_torus_is_cut_along_them() -> None:
    """128 by 12 lies as 8 by 16 by 12, whatever the order of the torus's axes; every group of 12 is a ring."""
    for torus in permutations((8, 12, 16)):
        island = island_of(hosts=384, devices_per_host=4, torus=torus, block=(2, 2, 1))
        place = choose(SliceSpec("s", 1536, (128, 12)), [(island, [1] * 1536, [0] * 1536)])
        assert place is not None
        devices = list(place.devices())
        assert len(set(devices)) == 1536
        axis = torus.index(12)
        for row in range(0, 1536, 12):
            spots = [island.coords(device) for device in devices[row : row + 12]]
            assert [spot[axis] for spot in spots] == list(range(12))
            assert len({(*spot[:axis], *spot[axis + 1 :]) for spot in spots}) == 1


# --- by count -----------------------------------------------------------------------------------------------


def subsets(island: Island, usable: list[int], count: int) -> list[tuple[int, ...]]:
    able = [island.base_device + at for at, yes in enumerate(usable) if yes]
    return list(combinations(able, count))


@given(st.data(), tiny())
@examples(150)
def test_packed_takes_the_fewest_hosts_then_the_lowest_peak(data: st.DataObject, island: Island) -> None:
    count = data.draw(st.integers(1, island.devices))
    usable, load = data.draw(used(island))
    place = choose(SliceSpec("s", count), [(island, usable, load)])
    able = [weighed(island, load, devices) for devices in subsets(island, usable, count)]
    assert (place is None) == (not able)
    if place:
        devices = tuple(place.devices())
        assert may(island, usable, devices)
        assert list(devices) == sorted(set(devices))
        hosts, loads = weighed(island, load, devices)
        assert (hosts, loads[0]) == min((hosts, loads[0]) for hosts, loads in able)


@given(st.data(), tiny())
@examples(150)
def test_packed_takes_the_least_loaded(data: st.DataObject, island: Island) -> None:
    """The choice has the least load if the slice is a part of a host or consists of whole hosts."""
    sizes = [n for n in range(1, island.devices + 1) if n % island.devices_per_host == 0 or n < island.devices_per_host]
    count = data.draw(st.sampled_from(sizes))
    usable, load = data.draw(used(island, gaps=False))
    place = choose(SliceSpec("s", count), [(island, usable, load)])
    assert place is not None
    able = [weighed(island, load, devices) for devices in subsets(island, usable, count)]
    assert weighed(island, load, tuple(place.devices())) == min(able)


@given(st.data(), tiny())
@examples(150)
def test_spread_takes_as_many_hosts_as_possible_and_equally_many_devices_of_each(
    data: st.DataObject, island: Island
) -> None:
    count = data.draw(st.integers(1, island.devices))
    usable, load = data.draw(used(island))
    place = choose(SliceSpec("s", count, layout="spread"), [(island, usable, load)])

    def rank(devices: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return how many devices each host gives, the most first, then the loads, the highest first."""
        hosts = [island.host_of(device) for device in devices]
        each = sorted((hosts.count(host) for host in set(hosts)), reverse=True)
        return each, weighed(island, load, devices)[1]

    able = [rank(devices) for devices in subsets(island, usable, count)]
    assert (place is None) == (not able)
    if place:
        devices = tuple(place.devices())
        assert may(island, usable, devices)
        assert len(set(devices)) == count
        assert rank(devices) == min(able)


def test_among_islands_the_least_loaded_then_the_first_is_chosen() -> None:
    islands = Cluster(tuple(Island(name=n, hosts=2, devices_per_host=2) for n in "abc")).islands
    empty = [1] * 4
    loads = [[1] * 4, [0, 0, 1, 1], [0] * 4]
    free = [(island, empty, load) for island, load in zip(islands, loads, strict=True)]
    for count, index in ((2, 1), (4, 2)):
        place = choose(SliceSpec("s", count), free)
        assert place is not None
        assert place.island == index


def test_among_islands_the_least_loaded_is_chosen_even_if_another_has_larger_hosts() -> None:
    wide, narrow = Cluster(
        (Island(name="wide", hosts=1, devices_per_host=4), Island(name="narrow", hosts=4, devices_per_host=1))
    ).islands
    free = [(wide, [1] * 4, [1] * 4), (narrow, [1] * 4, [0] * 4)]
    place = choose(SliceSpec("s", 4), free)
    assert place == narrow.whole
    assert choose(SliceSpec("s", 4), [(wide, [1] * 4, [0] * 4), free[1]]) == wide.whole


def test_among_islands_a_spread_slice_takes_the_one_with_most_hosts() -> None:
    wide, narrow = Cluster(
        (Island(name="wide", hosts=1, devices_per_host=4), Island(name="narrow", hosts=4, devices_per_host=1))
    ).islands
    free = [(wide, [1] * 4, [0] * 4), (narrow, [1] * 4, [1] * 4)]
    assert choose(SliceSpec("s", 4, layout="spread"), free) == narrow.whole


# --- places are small ---------------------------------------------------------------------------------------


def test_the_encoding_of_a_place_does_not_grow_with_its_slice() -> None:
    for side in (8, 32, 320):  # 64 devices; 102,400 devices
        island = island_of(hosts=side * side // 4, devices_per_host=4, torus=(side, side), block=(2, 2))
        free = [(island, [1] * island.devices, [0] * island.devices)]
        for spec in (
            SliceSpec("s", side * side),
            SliceSpec("s", side * side, (side, side)),
            SliceSpec("s", side * side // 2, (side, side // 2)),
            SliceSpec("s", side * side // 2, (side // 4, 2, side)),
            SliceSpec("s", side * side // 4, layout="spread"),
        ):
            place = choose(spec, free)
            assert place is not None
            assert len(place.grids) == 1
            assert place.size == spec.devices


# --- what can fit -------------------------------------------------------------------------------------------


@given(st.data(), tori(cells=16))
@examples(150)
def test_a_mesh_fits_if_a_block_avoids_the_spares(data: st.DataObject, island: Island) -> None:
    mesh = data.draw(meshes(len(island.torus)))
    assume(sum(extent > 1 for extent in mesh) <= max(1, sum(size > 1 for size in island.torus)))
    reach = island.base_device + island.regular * island.devices_per_host
    able = any(max(devices) < reach for devices in blocks(island, mesh))
    assert fits(island, mesh_spec(mesh)) == able


@st.composite
def specs(draw: st.DrawFn) -> SliceSpec:
    mesh = tuple(draw(st.lists(st.integers(-1, 9), max_size=4)))
    agree = draw(st.booleans())
    devices = prod(mesh) if mesh and agree else draw(st.integers(-2, 40))
    return SliceSpec(
        "s",
        devices,
        mesh,
        kind=draw(st.sampled_from(["", "cpu", "other", "cpuu", "tpu"])),
        island=draw(st.sampled_from(["", "t", "other", "otter", "nowhere"])),
        layout=draw(st.sampled_from(LAYOUTS)),
        exclusive=draw(st.booleans()),
    )


@given(st.one_of(tori(), tiny()), specs())
@examples(200)
def test_the_nearest_shape_that_is_suggested_fits(island: Island, spec: SliceSpec) -> None:
    cluster = Cluster((Island(name="other", kind="other", hosts=1, devices_per_host=3), island))
    near = nearest(cluster, spec)
    assert sound(near)
    assert any(fits(each, near) for each in cluster.islands)
    if sound(spec) and any(fits(each, spec) for each in cluster.islands):
        assert near == spec


@given(st.data(), st.integers(1, 4), st.integers(1, 4))
@examples(60)
def test_slices_of_one_shape_balance_the_load(data: st.DataObject, hosts: int, devices_per_host: int) -> None:
    """The load is balanced if the slices are a part of a host or consist of whole hosts."""
    island = island_of(hosts=hosts, devices_per_host=devices_per_host)
    sizes = [n for n in range(1, island.devices + 1) if n % devices_per_host == 0 or devices_per_host % n == 0]
    layout = data.draw(st.sampled_from(LAYOUTS))
    assert_balanced(island, SliceSpec("s", data.draw(st.sampled_from(sizes)), layout=layout))


@given(st.data(), tori())
@examples(60)
def test_meshes_that_tile_the_torus_balance_the_load(data: st.DataObject, island: Island) -> None:
    mesh = tuple(data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0])) for size in island.torus)
    assume(len(mesh) >= 2)
    assume(all(e % b == 0 or b % e == 0 for e, b in zip(mesh, island.block, strict=True)))
    assume(len(orientations(mesh, island.torus)) == 1)  # another orientation may take fewer hosts, and not tile
    assert_balanced(island, mesh_spec(mesh))


def assert_balanced(island: Island, spec: SliceSpec) -> None:
    load = [0] * island.devices
    for _ in range(2 * island.devices // spec.devices + 2):
        place = choose(spec, [(island, [1] * island.devices, load)])
        assert place is not None
        for device in place.devices():
            load[device - island.base_device] += 1
        assert max(load) - min(load) <= 1, load

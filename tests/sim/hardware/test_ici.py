"""Collectives: formulas compared with contents that really move, and links compared with where devices really lie."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil, prod
from time import process_time

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.model.errors import Impossible
from core.model.place import Place, line
from core.model.topology import Cluster, Island
from core.slices import grids
from sim.hardware import axes, ici
from sim.hardware.axes import Axis, AxisGroup, axes_of, groups_of
from sim.hardware.chips import Chip, chip
from sim.hardware.ici import collective_time
from sim.hardware.kernels import Collective, Kind
from sim.hardware.setups import Setup, load
from tests.coordinates import device_at
from tests.laws import examples

from .rounds import Torus, all_gather, busiest_link_of_all_to_all

LATENCY, SHARE = 700, 3 * 5 * 7 * 2**10  # bytes that divide evenly wherever they are split below

PLAIN = Chip(
    name="plain", peak_flops=1, hbm_bytes=1, hbm_bandwidth=1, clock_hz=1, torus_dims=2, pcie_bandwidth=1,
    pcie_latency=1, ici_bandwidth=2_000_000_000, ici_latency=LATENCY,  # two bytes a nanosecond
)  # fmt: skip
TWIN = msgspec.structs.replace(PLAIN, name="twin", devices_per_chip=2, core_bandwidth=200_000_000_000, core_latency=1)
KINDS: list[Kind] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"]
FAST, SLOW = Fraction(2), Fraction(1)  # bytes a nanosecond


def torus(*dims: int, wraps: bool | tuple[bool, ...] = True, block: tuple[int, ...] | None = None) -> Island:
    block = block or (1,) * len(dims)
    each = wraps if isinstance(wraps, tuple) else (wraps,) * len(dims)
    hosts = prod(dims) // prod(block)
    return Island(name="t", hosts=hosts, devices_per_host=prod(block), torus=dims, wraps=each, block=block)


def time(kind: Kind, nbytes: int, island: Island, of: Chip = PLAIN, place: Place | None = None, **more: object) -> int:
    collective = msgspec.convert({"kind": kind, "nbytes": nbytes, **more}, Collective)
    return collective_time(collective, place or island.whole, island, of)


def how(island: Island, of: Chip = PLAIN, levels: axes.Levels = (), place: Place | None = None) -> str:
    place = place or island.whole
    found = axes_of(place, groups_of(place, levels)[0], island, of)
    return " x ".join(f"{axis.kind} of {axis.size}" for axis in found) or "one device"


# --- formulas against rounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("size", range(2, 9))
def test_a_ring_and_a_line_take_as_long_as_their_rounds(size: int, wraps: bool) -> None:
    played = all_gather(Torus((size,), (wraps,)), SHARE, FAST, LATENCY)
    assert time("all-gather", SHARE, torus(size, wraps=wraps)) == ceil(played)


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("dims", [(2, 2), (3, 3), (4, 4), (2, 2, 2), (3, 3, 3)])
def test_all_axes_of_a_torus_work_at_once(dims: tuple[int, ...], wraps: bool) -> None:
    played = all_gather(Torus(dims, (wraps,) * len(dims)), SHARE, FAST, LATENCY)
    assert time("all-gather", SHARE, torus(*dims, wraps=wraps)) == ceil(played)


@pytest.mark.parametrize("sizes", [(2, 3), (2, 16), (8, 4), (3, 3)])
@pytest.mark.parametrize("speeds", [(1, 1), (1, 4), (8, 1)])
def test_the_split_between_two_axes_is_the_best_there_is(sizes: tuple[int, int], speeds: tuple[int, int]) -> None:
    """A fraction f takes the first axis first, the rest the second."""
    (m, n), (slow, fast) = sizes, speeds
    found = ici.gather(m * n * 1000, (Axis("line", m, slow * 1e9, 0), Axis("line", n, fast * 1e9, 0)))
    best = min(
        max((m - 1) * (f + (1 - f) * n) / slow, (n - 1) * (f * m + (1 - f)) / fast)
        for f in (at / 4000 for at in range(4001))
    )
    assert found <= best * 1000 * (1 + 1e-9)
    assert found == pytest.approx(best * 1000, rel=2e-3)


@pytest.mark.parametrize("dims", [(4,), (5,), (2, 3), (4, 4), (5, 2), (2, 3, 4)])
def test_all_to_all_is_as_slow_as_its_busiest_link(dims: tuple[int, ...]) -> None:
    for wraps in product([True, False], repeat=len(dims)):
        shape = Torus(dims, wraps)
        hops = sum(shape.rounds(axis) for axis in range(len(dims)))
        played = busiest_link_of_all_to_all(shape) * SHARE / FAST + hops * LATENCY
        assert time("all-to-all", SHARE, torus(*dims, wraps=wraps)) == ceil(played)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    island = torus(4, 6, wraps=(True, False))
    half = time("reduce-scatter", SHARE * 24, island)
    assert half == time("all-gather", SHARE, island), "the same backwards"
    assert time("all-reduce", SHARE * 24, island) == 2 * half


def test_a_collective_of_one_device_takes_no_time() -> None:
    island = torus(4, 4)
    for kind in KINDS:
        assert time(kind, 10**9, island, place=line(0, 5, 1)) == 0


# --- known values -----------------------------------------------------------------------------------------------


def time_on_all(setup: Setup, kind: Kind, nbytes: int, levels: axes.Levels = ()) -> int:
    island = setup.cluster.islands[0]
    return collective_time(Collective(kind, nbytes, levels), island.whole, island, setup.chips[0])


def test_an_all_gather_on_a_pod_of_v5e_agrees_with_a_hand_calculation() -> None:
    """256 MiB over four links of 50 GB/s into each chip of 16 x 16, which begins with one 256th; 16 hops."""
    by_hand = 2**28 * 255 / 256 / 200e9 * 1e9 + 16_000
    assert time_on_all(load("v5e-256"), "all-gather", 2**20) == ceil(by_hand)


def test_half_a_pod_of_v5e_wraps_along_one_axis() -> None:
    setup = load("v5e-128")
    assert how(setup.cluster.islands[0], setup.chips[0]) == "line of 8 x ring of 16"
    by_hand = 2**27 * 127 / 128 / 150e9 * 1e9 + (7 + 8) * 1000
    assert time_on_all(setup, "all-gather", 2**20) == ceil(by_hand)


def test_an_all_reduce_on_set_up_a_agrees_with_a_hand_calculation() -> None:
    """4 bytes: there and back over 16 + 16 hops, and to the other core of a chip. A gigabyte: each core sends half of
    what its chip receives over four links of 82 GB/s."""
    setup = load("A")
    assert time_on_all(setup, "all-reduce", 4) == pytest.approx(2 * (16_000 + 16_000 + 500), abs=2)
    by_hand = 2 * 2**30 * 1023 / 1024 / (4 * 82e9) * 1e9 + 65_000
    assert time_on_all(setup, "all-reduce", 2**30) == pytest.approx(by_hand, rel=1e-6)


def test_an_all_reduce_on_hosts_of_h100_agrees_with_a_hand_calculation() -> None:
    """A gigabyte reduced by 64: 7/8 of an eighth leaves each device over its card, the rest stays on NVLink."""
    setup = load("h100-64")
    by_hand = 2 * (2**30 / 64 * 7 / 50e9 * 1e9 + 3 * 5000 + 3 * 2000)
    assert time_on_all(setup, "all-reduce", 2**30) == pytest.approx(by_hand, rel=1e-6)


def test_all_to_all_between_hosts_of_h100_is_one_step() -> None:
    by_hand = 2**30 * 7 / 8 / 50e9 * 1e9 + 5000 + 2000
    assert time_on_all(load("h100-64"), "all-to-all", 2**30) == pytest.approx(by_hand, rel=1e-6)


def test_groups_of_one_host_stay_on_nvlink() -> None:
    setup = load("h100-64")
    island = setup.cluster.islands[0]
    assert how(island, setup.chips[0], ((8, 1),)) == "switch of 8"
    assert how(island, setup.chips[0], ((8, 8),)) == "switch of 8"
    within = time_on_all(setup, "all-reduce", 2**30, ((8, 1),))
    assert within == pytest.approx(2 * (2**30 * 7 / 8 / 450e9 * 1e9 + 6000), rel=1e-6)
    assert time_on_all(setup, "all-reduce", 2**30, ((8, 8),)) > 8 * within


# --- which links a group has ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((), "ring of 8 x ring of 8"),
        (((64, 1),), "ring of 8 x ring of 8"),
        (((8, 1),), "ring of 8"),  # a row
        (((8, 8),), "ring of 8"),  # a column
        (((4, 1),), "line of 4"),  # half a row does not close
        (((4, 2),), "ring of 4"),  # every second device of a row does
        (((2, 4),), "ring of 2"),
        (((4, 16), (4, 1)), "ring of 4 x line of 4"),
        (((2, 1),), "line of 2"),
        (((16, 1),), "line of 2 x ring of 8"),
        (((16, 4),), "ring of 8 x ring of 2"),
    ],
)
def test_the_strides_of_a_group_determine_its_links(levels: axes.Levels, expected: str) -> None:
    assert how(torus(8, 8), levels=levels) == expected


def test_a_group_that_does_not_wrap_is_a_line() -> None:
    assert how(torus(8, 8, wraps=(True, False))) == "ring of 8 x line of 8"
    assert how(torus(8, 8, wraps=False), levels=((8, 8),)) == "line of 8"
    assert how(torus(8, 8, wraps=False), levels=((4, 2),)) == "line of 4"


def test_a_part_of_a_torus_does_not_wrap_and_takes_longer() -> None:
    island = torus(8, 8)
    half = line(0, 0, 32)  # four rows
    assert how(island, place=half) == "line of 4 x ring of 8"
    assert time("all-gather", SHARE, island, place=half) < time("all-gather", SHARE, torus(4, 8, wraps=False))
    assert time("all-gather", SHARE, island, place=half) > time("all-gather", SHARE, torus(4, 8))


def test_a_slice_across_the_edge_costs_the_same_as_any_other() -> None:
    island = torus(8, 8)
    columns = [6, 7, 0, 1]
    across = Place(0, grids.product([[8 * row for row in range(8)], columns]))
    inside = Place(0, grids.product([[8 * row for row in range(8)], [2, 3, 4, 5]]))
    assert how(island, place=across) == how(island, place=inside) == "ring of 8 x line of 4"
    for kind in KINDS:
        assert time(kind, SHARE, island, place=across) == time(kind, SHARE, island, place=inside)


def test_cores_of_a_chip_share_its_links() -> None:
    chips, cores = torus(4, 4), torus(4, 8)
    assert how(cores, TWIN) == "ring of 4 x ring of 4 x switch of 2"
    alone = time("all-gather", 2 * SHARE, chips)
    assert time("all-gather", SHARE, cores, TWIN) == pytest.approx(alone, abs=2)
    of_one_core_each = time("all-gather", 2 * SHARE, cores, TWIN, groups=((16, 2),))
    assert of_one_core_each - 4 * LATENCY == pytest.approx(2 * (alone - 4 * LATENCY), abs=2)


def test_the_cores_of_one_chip_need_no_link() -> None:
    island = torus(4, 8)
    assert how(island, TWIN, ((2, 1),)) == "switch of 2"
    assert time("all-gather", SHARE, island, TWIN, groups=((2, 1),)) == ceil(SHARE / 200 + 1)


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize(("count", "stride"), [(6, 2), (3, 2), (3, 4), (2, 2), (2, 3), (2, 6), (12, 1)])
def test_groups_that_interleave_share_links(count: int, stride: int, wraps: bool) -> None:
    """Simulated: the data of each group on its own ring or line, summed over the 12 links that all groups use."""
    size = 12
    found = axes_of(line(0, 0, size), AxisGroup(((count, stride),)), torus(size, wraps=wraps), PLAIN)[0]
    closes = wraps and count * stride == size
    assert found.kind == ("ring" if closes else "line")
    load = [0] * size
    for first in (base + shift for base in range(0, size, count * stride) for shift in range(stride)):
        for step in range(count if closes else count - 1):
            for hop in range(stride):
                load[(first + step * stride + hop) % size] += 1
    assert found.bandwidth == pytest.approx(PLAIN.ici_bandwidth / max(load))
    assert found.latency == stride * LATENCY


def test_groups_far_apart_do_not_share() -> None:
    """Every second device of a ring, all in one group: no other group uses the links between them."""
    every_second = Place(0, grids.compact(range(0, 8, 2)))
    found = axes_of(every_second, AxisGroup(((4, 1),)), torus(8), PLAIN)[0]
    assert (found.kind, found.bandwidth, found.latency) == ("ring", PLAIN.ici_bandwidth, 2 * LATENCY)


def test_pairs_of_members_all_the_way_round_form_a_ring() -> None:
    """Two devices of every second host of eight: two groups, and each link carries both."""
    found = axes_of(line(0, 0, 16), AxisGroup(((4, 4), (2, 1))), torus(16, block=(2,)), PLAIN)
    assert found == (Axis("ring", 8, PLAIN.ici_bandwidth / 2, 2 * LATENCY),)
    half = axes_of(line(0, 0, 8), AxisGroup(((2, 4), (2, 1))), torus(16, block=(2,)), PLAIN)
    assert (half[0].kind, half[0].size) == ("line", 4)


def test_the_slowest_group_determines_the_time() -> None:
    """The first group is a row; the last one is a diagonal, eight devices far apart."""
    island = torus(8, 8)
    diagonal = Place(0, grids.compact([9 * at for at in range(8)]))
    place = Place(0, (*line(0, 8, 8).grids, *diagonal.grids))
    both = time("all-gather", SHARE, island, place=place, groups=((8, 1),))
    assert both == time("all-gather", SHARE, island, place=diagonal)
    assert both > time("all-gather", SHARE, island, place=line(0, 8, 8))


def test_a_group_that_starts_in_the_middle_of_a_row_continues_in_the_next() -> None:
    assert how(torus(8, 8), place=line(0, 4, 8)) == "line of 2 x ring of 8"


def test_a_ragged_slice_is_priced_as_the_box_around_it() -> None:
    island = torus(8, 8, wraps=False)
    assert how(island, place=line(0, 0, 28)) == how(island, place=line(0, 0, 32)) == "line of 4 x line of 8"
    assert time("all-reduce", SHARE, island, place=line(0, 0, 28)) == time(
        "all-reduce", SHARE, island, place=line(0, 0, 32)
    )


def test_scattered_members_take_as_long_as_their_longest_way() -> None:
    island = torus(8, 8)
    corners = Place(0, grids.compact([0, 9, 18, 27, 36, 45, 54, 63]))
    found = axes_of(corners, AxisGroup(((8, 1),)), island, PLAIN)
    assert found == (Axis("ring", 8, PLAIN.ici_bandwidth / 2, 2 * LATENCY),)  # a diagonal: two hops a step
    between_chips = axes_of(corners, AxisGroup(((8, 1),)), torus(8, 8, wraps=False), TWIN)
    assert between_chips[0].latency == LATENCY * (7 + 3 + 7 + 3) / 8  # down, across, and both ways back
    assert time("all-gather", SHARE, island, place=corners) > time("all-gather", SHARE, island, place=line(0, 0, 8))


def test_the_links_of_the_island_override_those_of_the_chip() -> None:
    own = msgspec.structs.replace(torus(8), ici_bandwidth=1_000_000_000, ici_latency=50)
    assert time("all-gather", SHARE, own) == ceil(SHARE * 7 / 2 / SLOW + 4 * 50)


# --- permute ----------------------------------------------------------------------------------------------------


def test_a_permute_sends_to_the_next_member() -> None:
    """One hop around a ring. On a line, the last member's message goes all the way back, against the others."""
    one = ceil(SHARE / FAST) + LATENCY
    assert time("permute", SHARE, torus(8)) == one
    assert time("permute", SHARE, torus(8, wraps=False)) == one + 6 * LATENCY
    assert time("permute", SHARE, torus(8, 8), groups=((8, 8),)) == one


def test_a_permute_of_many_hops_shares_links() -> None:
    """Stages of two columns: each device sends two hops on, and so does its neighbour."""
    assert time("permute", SHARE, torus(8), groups=((4, 2),)) == ceil(2 * SHARE / FAST) + 2 * LATENCY


def test_a_permute_between_cores_uses_the_chips_links() -> None:
    """Alternately to the other core and to the next chip: one message on a link. From chip to chip: both cores
    send."""
    assert time("permute", SHARE, torus(8), TWIN) == ceil(SHARE / FAST) + LATENCY
    assert time("permute", SHARE, torus(8), TWIN, groups=((4, 2),)) == ceil(2 * SHARE / FAST) + LATENCY


def test_the_hops_to_the_next_member_are_the_shorter_way_between_chips() -> None:
    ring, line_ = torus(8, 8), torus(8, 8, wraps=False)

    def hops(one: tuple[int, int], other: tuple[int, int], island: Island, of: Chip) -> list[int]:
        first, second = (device_at(island, at) for at in (one, other))
        found = axes.hops_to_next(Place(0, grids.compact([first, second])), AxisGroup(((2, 1),)), island, of)
        return list(map(int, found))

    assert hops((0, 0), (0, 7), ring, PLAIN) == [1, 1]
    assert hops((0, 0), (0, 7), line_, PLAIN) == [7, 7]
    assert hops((1, 1), (5, 3), line_, PLAIN) == [6, 6]
    assert hops((0, 0), (0, 1), ring, TWIN) == [0, 0]
    assert hops((0, 0), (0, 7), ring, TWIN) == [1, 1]


# --- laws -------------------------------------------------------------------------------------------------------


@st.composite
def slices(draw: st.DrawFn) -> tuple[Island, Place]:
    """A torus divided into hosts, and a block of it with its axes in some order, perhaps across an edge."""
    rank = draw(st.integers(1, 3))
    block = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    dims = tuple(size * draw(st.integers(1, 4)) for size in block)
    island = torus(*dims, wraps=tuple(draw(st.booleans()) for _ in range(rank)), block=block)
    island = Cluster((Island(name="other", hosts=3, devices_per_host=3), island)).islands[1]
    order = draw(st.permutations(range(rank)))
    steps: list[list[int]] = []
    for axis in order:
        extent = draw(st.integers(1, dims[axis]))
        start = draw(st.integers(0, dims[axis] - 1 if island.wraps[axis] else dims[axis] - extent))
        origin = [0] * rank
        along = []
        for at in range(extent):
            origin[axis] = (start + at) % dims[axis]
            along.append(device_at(island, tuple(origin)) - island.base_device)
        steps.append(along)
    return island, Place(1, grids.product(steps, island.base_device))


@st.composite
def groupings(draw: st.DrawFn, size: int) -> axes.Levels:
    """Some digits of a mesh with this number of devices."""
    mesh: list[int] = []
    while size > 1:
        factor = draw(st.sampled_from([at for at in range(2, size + 1) if size % at == 0]))
        mesh.append(factor)
        size //= factor
    levels = [(extent, prod(mesh[at + 1 :])) for at, extent in enumerate(mesh)]
    return tuple(level for level in levels if draw(st.booleans()))


@st.composite
def strides(draw: st.DrawFn, size: int) -> axes.Levels:
    """Any strides that fit."""
    stride = draw(st.integers(1, max(1, size - 1)))
    return ((draw(st.integers(1, (size - 1) // stride + 1)), stride),)


@given(st.data())
@examples(300)
def test_coordinates_are_those_of_the_members_or_none_where_these_are_scattered(data: st.DataObject) -> None:
    island, place = data.draw(slices())
    levels = data.draw(groupings(place.size) | strides(place.size))
    for group in groups_of(place, levels or ((1, 1),)):
        at = [island.coords(place.device(member)) for member in group.members().tolist()]
        looked = tuple(tuple(sorted(set(along))) for along in zip(*at, strict=True))
        if group.size * 2 >= prod(map(len, looked)):
            assert axes._coordinates(place, group, island) == looked
        else:
            assert axes._coordinates(place, group, island) is None


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 10**9), st.integers(0, 10**9))
@examples(150)
def test_more_bytes_or_slower_links_never_make_it_shorter(
    data: st.DataObject, kind: Kind, nbytes: int, more: int
) -> None:
    island, place = data.draw(slices())
    levels = data.draw(groupings(place.size)) or ((1, 1),)
    of = data.draw(st.sampled_from([PLAIN, TWIN]))
    least = time(kind, nbytes, island, of, place, groups=levels)
    assert isinstance(least, int)
    assert time(kind, nbytes + more, island, of, place, groups=levels) >= least
    slower = msgspec.structs.replace(of, name="slower", ici_bandwidth=of.ici_bandwidth // 3)
    assert time(kind, nbytes, island, slower, place, groups=levels) >= least
    later = msgspec.structs.replace(of, name="later", ici_latency=of.ici_latency * 2)
    assert time(kind, nbytes, island, later, place, groups=levels) >= least
    assert time(kind, nbytes, island, of, place, groups=levels, count=7) == 7 * least


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 10**9))
@examples(100)
def test_links_that_wrap_never_make_it_longer(data: st.DataObject, kind: Kind, nbytes: int) -> None:
    island, place = data.draw(slices())
    open_ = msgspec.structs.replace(island, wraps=(False,) * len(island.torus))
    assume(place.grids == Place(1, place.grids[:1]).grids)  # one block: it would not cross the edge of an open torus
    assert time(kind, nbytes, island, place=place) <= time(kind, nbytes, open_, place=place)


# --- kernels, sizes and mistakes --------------------------------------------------------------------------------


def test_a_collective_beside_other_work_costs_only_its_exposed_rest() -> None:
    ring = torus(8)
    whole = time("all-gather", SHARE, ring)
    assert time("all-gather", SHARE, ring, hidden=whole // 3) == whole - whole // 3
    assert time("all-gather", SHARE, ring, hidden=whole // 3, count=5) == 5 * (whole - whole // 3)
    assert time("all-gather", SHARE, ring, hidden=whole + 1, count=5) == 0, "it is never a gain"
    line_of_8 = time("all-gather", SHARE, torus(8, wraps=False))
    assert time("all-gather", SHARE, torus(8, wraps=False), hidden=whole) == line_of_8 - whole, (
        "on slower links more of it is exposed"
    )


@pytest.mark.parametrize("levels", [((32, 1),), ((4, 8),), ((2, 0),), ((0, 1),), ((4, 4), (2, 4))])
def test_groups_that_do_not_fit_are_refused(levels: axes.Levels) -> None:
    with pytest.raises(Impossible, match="do not fit on the 16 devices of the gang"):
        time("all-reduce", 4, torus(4, 4), groups=levels)


def test_a_slice_in_many_pieces_is_priced_by_its_members() -> None:
    """Three columns on either side of the edge, with their rows in between, are no single grid."""
    island = torus(8, 8)
    columns = [5, 6, 7, 0, 1]
    place = Place(0, grids.product([[8 * row for row in range(8)], columns]))
    assert len(place.grids) > 1
    assert how(island, place=place) == "ring of 8 x line of 5"
    assert how(island, place=place, levels=((5, 1),)) == "line of 5"


def test_a_million_devices_are_soon_priced() -> None:
    setup = load("A", hosts=250_000)
    island = setup.cluster.islands[0]
    begun = process_time()
    for kind, levels in product(
        KINDS, [(), ((island.devices_per_host, 1),), ((island.hosts, island.devices_per_host),)]
    ):
        assert collective_time(Collective(kind, 2**20, levels), island.whole, island, setup.chips[0]) > 0
    assert process_time() - begun < 2


def test_every_chip_has_what_its_collectives_need() -> None:
    for name in ("v3", "v4", "v5e", "v5p", "v6e", "7x", "h100", "cpu"):
        setup = load({"island": [{"name": "i", "kind": name, "hosts": 16}]})
        assert setup.chips[0] == chip(name)
        for kind in KINDS:
            assert time_on_all(setup, kind, 2**20) > 0

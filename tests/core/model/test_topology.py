"""Tests numbers and coordinates of hosts and devices, clusters read from tables, and places written as few grids."""

from __future__ import annotations

import tomllib
from itertools import product as every
from math import prod

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import spans
from core.model.errors import Impossible
from core.model.place import Grid, Place, line
from core.model.topology import GIB, PRESETS, SIMULATED_KEYS, Cluster, Island, small
from core.slices import grids
from tests.laws import examples


@st.composite
def tori(draw: st.DrawFn) -> Island:
    """A torus of up to three axes, cut into hosts."""
    rank = draw(st.integers(1, 3))
    block = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    hosts = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    torus = tuple(b * h for b, h in zip(block, hosts, strict=True))
    first = Island(name="first", hosts=2, devices_per_host=3)
    island = Island(name="t", hosts=prod(hosts), devices_per_host=prod(block), torus=torus, block=block)
    return Cluster((first, island)).islands[1]


# --- numbers ------------------------------------------------------------------------------------------------


def test_hosts_and_devices_are_numbered_through_the_cluster() -> None:
    cluster = Cluster((Island(name="a", hosts=2, devices_per_host=4), Island(name="b", hosts=3, devices_per_host=2)))
    a, b = cluster.islands
    assert (cluster.hosts, cluster.devices) == (5, 14)
    assert (a.index, a.base_host, a.base_device) == (0, 0, 0)
    assert (b.index, b.base_host, b.base_device) == (1, 2, 8)
    assert [b.host_of(device) for device in range(8, 14)] == [2, 2, 3, 3, 4, 4]
    assert [cluster.host_of(device) for device in (0, 3, 4, 7, 8, 13)] == [0, 0, 1, 1, 2, 4]
    assert [b.devices_of(host) for host in (2, 3, 4)] == [((8, 10),), ((10, 12),), ((12, 14),)]
    assert [cluster.island_of_host(host).name for host in range(5)] == list("aabbb")
    assert [cluster.island_of_device(device).name for device in (0, 7, 8, 13)] == list("aabb")
    assert (b.host_span, b.device_span, b.whole) == (((2, 5),), ((8, 14),), line(1, 8, 6))
    assert cluster.island("b") == b


@pytest.mark.parametrize("number", [-1, 14])
def test_a_number_out_of_range_is_an_error(number: int) -> None:
    cluster = small(hosts=7, devices_per_host=2)
    with pytest.raises(Impossible, match=rf"no device {number}; devices are 0-13"):
        cluster.island_of_device(number)
    with pytest.raises(Impossible, match=r"no host 7; hosts are 0-6"):
        cluster.island_of_host(7)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 7), unique=True, min_size=1))
@examples(60)
def test_hosts_of_a_place(devices_per_host: int, skip: int, picks: list[int]) -> None:
    cluster = Cluster(
        (Island(name="o", hosts=skip, devices_per_host=3), Island(name="i", hosts=8, devices_per_host=devices_per_host))
    )
    base = cluster.islands[1].base_device
    devices = sorted(base + pick for pick in picks if pick < 8 * devices_per_host)
    place = Place(1, grids.compact(devices))
    expected = sorted({cluster.host_of(device) for device in devices})
    assert list(spans.items(cluster.hosts_of(place))) == expected
    assert cluster.hosts_of(place) is cluster.hosts_of(place)  # remembered


@given(tori())
@examples(60)
def test_every_device_of_a_torus_has_its_own_coordinates(island: Island) -> None:
    devices = range(island.base_device, island.base_device + island.devices)
    found = {device: island.coords(device) for device in devices}
    assert sorted(found.values()) == sorted(every(*map(range, island.torus)))


@given(tori())
@examples(60)
def test_a_host_is_a_block_of_the_torus(island: Island) -> None:
    for host in spans.items(island.host_span):
        cells = [island.coords(device) for device in spans.items(island.devices_of(host))]
        corner = cells[0]
        assert all(at % size == 0 for at, size in zip(corner, island.block, strict=True))
        inside = every(*(range(at, at + size) for at, size in zip(corner, island.block, strict=True)))
        assert cells == list(inside)


# --- tables -------------------------------------------------------------------------------------------------

TOML = """
dcn_latency = 50_000
[[island]]
name = "pod"
kind = "tpu-v5e"
hosts = 4
devices_per_host = 4
torus = [4, 4]
block = [2, 2]
wraps = [false, true]
memory = "16 GiB"
spares = 1
[[island]]
name = "gpu"
count = 2
kind = "h100"
hosts = 2
devices_per_host = 8
"""


def test_a_cluster_from_a_table() -> None:
    cluster = Cluster.from_table(tomllib.loads(TOML))
    assert cluster.describe().splitlines() == [
        "island 'pod': 4 hosts x 4 tpu-v5e, torus 4x4, 1 of the hosts spare",
        "island 'gpu0': 2 hosts x 8 h100",
        "island 'gpu1': 2 hosts x 8 h100",
    ]
    pod = cluster.island("pod")
    assert (pod.memory, pod.wraps, pod.block, pod.regular) == (16 * GIB, (False, True), (2, 2), 3)
    assert cluster.dcn_latency == 50_000
    assert [island.assumed for island in cluster.islands] == [False, True, True], "no `memory` was given"


def test_keys_for_the_simulator_alone_are_ignored() -> None:
    more = """
name = "mine"
note = "measured"
[machine]
cores = 4
[dcn]
latency = "10 us"
[chip.mine]
like = "v5e"
[[shared]]
hosts = true
[profile]
like = "seaway"
"""
    table = tomllib.loads(more + TOML.replace("dcn_latency = 50_000", ""))
    assert set(SIMULATED_KEYS) < set(table)
    assert Cluster.from_table(table) == Cluster.from_table({"island": table["island"]})


def test_a_torus_wraps_and_its_hosts_are_cut_along_the_last_axes_unless_told_otherwise() -> None:
    island = Island(name="t", hosts=4, devices_per_host=8, torus=(8, 4))
    assert (island.wraps, island.block) == ((True, True), (2, 4))


ISLAND = {"name": "a", "hosts": 4, "devices_per_host": 4}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"per_host": 4}, "island 1 of the table has no key 'per_host'; nearest: 'devices_per_host'"),
        ({"base_host": 4}, "no key 'base_host'"),
        ({"assumed": False}, "no key 'assumed'"),
        ({"hosts": "4"}, "island 1 of the table: Expected `int`, got `str` - at `$.hosts`"),
        ({"hosts": True}, "Expected `int`, got `bool`"),
        ({"hosts": 0}, "island 'a' needs at least one of `hosts`"),
        ({"memory": "16 GB"}, "`memory` cannot be '16 GB': write bytes, or a text like '16GiB'"),
        ({"memory": -1}, "`memory` is negative"),
        ({"spares": 4}, "all 4 hosts are spares"),
        ({"count": 0}, "`count` cannot be 0"),
        ({"torus": [4, 5]}, "torus 4x5 has 20 devices, 4 hosts of 4 are 16"),
        ({"torus": [2, 2, 2, 2]}, "one to three axes"),
        ({"torus": [4, 4], "wraps": [True]}, "`wraps` and `block` need one entry for each axis"),
        ({"torus": [4, 4], "block": [2, 1]}, "cannot be cut into hosts of 2x1 with 4 devices each"),
        ({"torus": [2, 8], "block": [4, 1]}, "cannot be cut into hosts of 4x1"),
        ({"block": [2, 2]}, "`wraps`, `block` need a `torus`"),
        ({"name": ""}, "an island needs a name"),
    ],
)
def test_a_contradictory_table_is_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(Impossible) as refused:
        Cluster.from_table({"island": [{**ISLAND, **changes}]})
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({}, "a cluster needs an island"),
        ({"islands": [ISLAND]}, "the cluster has no key 'islands'; nearest: 'island'"),
        ({"island": [ISLAND], "machin": {}}, "the cluster has no key 'machin'; nearest: 'machine'"),
        ({"island": ISLAND}, "`island` is a list of tables; write [[island]]"),
        ({"island": [ISLAND, ISLAND]}, "two islands have the name 'a'"),
        ({"island": [3]}, "island 1 of the table is not a table"),
        ({"island": [{"name": "a", "hosts": 4}]}, "missing required field `devices_per_host`"),
        ({"island": [ISLAND], "dcn_latency": 0.5}, "the cluster's `dcn_latency`: Expected `int`"),
    ],
)
def test_an_invalid_table_is_refused(table: dict[str, object], text: str) -> None:
    with pytest.raises(Impossible) as refused:
        Cluster.from_table(table)
    assert text in str(refused.value)


def test_a_misspelt_island_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Impossible, match=r"no island 'pdo'; nearest: 'pod'; there is: 'pod', 'gpu0', 'gpu1'"):
        Cluster.from_table(tomllib.loads(TOML)).island("pdo")


def test_a_cluster_can_be_encoded_and_decoded() -> None:
    cluster = Cluster.from_table(PRESETS["C"])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(cluster), type=Cluster) == cluster


# --- presets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "islands", "hosts", "devices"), [("A", 1, 512, 2048), ("B", 1, 64, 512), ("C", 4, 16, 128)]
)
def test_the_presets_are_the_papers_set_ups(name: str, islands: int, hosts: int, devices: int) -> None:
    cluster = Cluster.from_table(PRESETS[name])
    assert (len(cluster.islands), cluster.hosts, cluster.devices) == (islands, hosts, devices)
    assert {island.memory for island in cluster.islands} == {16 * GIB}


def test_a_small_cluster() -> None:
    assert small(3, 2, islands=2).describe().splitlines() == [
        "island 'i0': 3 hosts x 2 cpu",
        "island 'i1': 3 hosts x 2 cpu",
    ]


# --- few grids ----------------------------------------------------------------------------------------------

NUMBERS = st.lists(st.integers(0, 40), unique=True)
REGULAR = st.builds(
    lambda base, shape, strides: list(Grid(base, tuple(shape), tuple(strides)).devices()),
    st.integers(0, 50),
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.lists(st.integers(1, 30), min_size=3, max_size=3),
)


def written_out(found: tuple[Grid, ...]) -> list[int]:
    return [device for grid in found for device in grid.devices()]


@given(NUMBERS | REGULAR)
def test_a_compact_place_equals_its_list_of_devices(devices: list[int]) -> None:
    found = grids.compact(devices)
    assert written_out(found) == devices
    place = Place(0, found)
    assert [place.device(index) for index in range(len(devices))] == devices


@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True), max_size=3), st.integers(0, 9))
def test_a_product_of_grids_is_every_sum_in_order(axes: list[list[int]], base: int) -> None:
    assert written_out(grids.product(axes, base)) == [base + sum(parts) for parts in every(*axes)]


def test_regular_lists_are_one_grid_of_the_fewest_dimensions() -> None:
    assert grids.compact(range(100_000)) == (Grid(0, (100_000,), (1,)),)
    assert grids.compact(range(3, 400, 4)) == (Grid(3, (100,), (4,)),)
    assert grids.compact([7]) == (Grid(7, (1,), (1,)),)
    assert grids.compact([]) == ()
    squares = [row * 8 + column for row in range(4) for column in range(2)]
    assert grids.compact(squares) == grids.product([[0, 8, 16, 24], [0, 1]]) == (Grid(0, (4, 2), (8, 1)),)
    assert grids.tidy(Grid(5, (4, 1, 2, 3), (6, 9, 3, 1))) == Grid(5, (24,), (1,))

"""Set-ups: figures of chips and their sources, clusters by name and by file, and what is refused."""

from __future__ import annotations

import pickle
import tomllib
from math import prod
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import Impossible
from core.model.topology import GIB
from sim.hardware import chips
from sim.hardware.chips import Chip
from sim.hardware.layout import host_block, nearest_cube, wraps
from sim.hardware.setups import Setup, load
from sim.hardware.toml_tables import packaged, quantity
from tests.laws import examples

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "cluster.toml"
TPUS = ["tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-7x"]


def chips_of(setup: Setup) -> tuple[int, ...]:
    """The torus of the first island, in chips."""
    torus = setup.cluster.islands[0].torus
    return (*torus[:-1], torus[-1] // setup.chips[0].devices_per_chip)


# --- figures ----------------------------------------------------------------------------------------------------


def test_every_figure_of_every_chip_states_its_source() -> None:
    tables: dict[str, dict[str, object]] = {**packaged("chips"), "network": {"chip": packaged("")["network"]}}
    for file, table in tables.items():
        for part in ("chip", "machine"):
            figures = table.get(part, {})
            assert isinstance(figures, dict)
            for key, figure in figures.items():
                source = figure["source"]
                assert len(source) > 8 or file == "cpu", (file, part, key)
                assert source != "assumed" or file == "cpu", f"{file} {key}: say why"
    for one in chips.generations():
        given = {name for name in chips.CHIP_UNITS if getattr(one.chip, name)}
        implied = {"devices_per_chip"} if one.chip.devices_per_chip == 1 else set()
        assert given - implied <= one.chip.sources.keys()
        assert one.machine.sources.keys() == {*chips.MACHINE_UNITS} - {"disk_bandwidth"}  # no disk is sold with it


def test_all_chip_generations_have_their_names() -> None:
    assert {one.chip.name for one in chips.generations()} == {*TPUS, "a100", "h100", "cpu"}
    assert chips.chip("v3") is chips.chip("tpu-v3") is chips.chip("TPU-v3")
    assert chips.chip("trillium").name == "tpu-v6e"
    assert chips.chip("ironwood") is chips.chip("7x") is chips.chip("tpu7x")
    with pytest.raises(Impossible, match=r"no chip 'v5'; nearest: 'v5[ep]'"):
        chips.chip("v5")


def test_a_v3_device_is_a_core() -> None:
    """Known values of a pod: 123 TFLOP/s and 900 GB/s a chip, 126 PFLOP/s in all."""
    v3 = chips.chip("v3")
    assert (v3.devices_per_chip, v3.hbm_bytes, v3.peak_flops) == (2, 16 * GIB, 61_500_000_000_000)
    assert v3.peak_flops * v3.pod == pytest.approx(126e15, rel=1e-3)
    assert v3.hbm_bandwidth * 2 == 900_000_000_000
    assert v3.ici_bandwidth * 4 * 1024 == pytest.approx(340e12, rel=0.02)  # what the docs call all-reduce bandwidth


@pytest.mark.parametrize(("name", "both_ways"), [("v5e", 400e9), ("v5p", 1200e9), ("v6e", 800e9), ("7x", 1200e9)])
def test_links_give_the_bandwidth_of_a_chip(name: str, both_ways: float) -> None:
    one = chips.chip(name)
    assert one.ici_bandwidth * 2 * one.torus_dims * 2 == both_ways


def test_the_table_in_the_docs_equals_the_files() -> None:
    lines = (EXAMPLE.parents[1] / "hardware.md").read_text(encoding="utf-8").splitlines()
    rows = {cells[1]: cells[2:-1] for line in lines if len(cells := [c.strip() for c in line.split("|")]) == 13}
    for name in (*TPUS, "a100", "h100"):
        one, machine = chips.chip(name), chips.generation(name).machine
        figures: list[str | float] = [
            one.devices_per_chip, one.peak_flops / 1e12, one.hbm_bytes / GIB, one.hbm_bandwidth / 1e9,
            f"{one.torus_dims}D" if one.torus_dims else "-", one.ici_bandwidth / 1e9, one.wrap_min or "-",
            one.pcie_bandwidth / 1e9, one.devices_per_host, machine.nic_bandwidth * 8 / 1e9,
        ]  # fmt: skip
        shown = [f if isinstance(f, str) else f"{round(f, 1):g}" for f in figures]
        assert rows[name] == shown


# --- by name ----------------------------------------------------------------------------------------------------


def test_the_papers_set_ups_have_their_sizes() -> None:
    a, b, c = load("A"), load("B"), load("C")
    assert (a.cluster.hosts, a.cluster.devices) == (512, 2048)
    assert (a.cluster.islands[0].devices_per_host, chips_of(a), a.cluster.islands[0].wraps) == (
        4,
        (32, 32),
        (True, True),
    )
    assert (b.cluster.hosts, b.cluster.devices, b.cluster.islands[0].devices_per_host) == (64, 512, 8)
    assert [(i.hosts, i.devices) for i in c.cluster.islands] == [(4, 32)] * 4
    assert c.chips == (chips.chip("v3"),) * 4
    assert not any(b.cluster.islands[0].wraps + c.cluster.islands[0].wraps)
    assert all("Pathways" not in s.note and "paper" in s.note for s in (a, b, c))


@pytest.mark.parametrize(
    ("name", "devices", "hosts", "torus", "wrapped"),
    [
        ("v3-32", 32, 4, (4, 4), False),
        ("v3-128", 128, 16, (8, 8), False),
        ("v3-512", 512, 64, (16, 16), False),
        ("v3-2048", 2048, 256, (32, 32), True),
        ("v4-8", 4, 1, (2, 2, 1), False),
        ("v4-64", 32, 8, (2, 4, 4), False),
        ("v4-128", 64, 16, (4, 4, 4), True),
        ("v4-512", 256, 64, (4, 8, 8), True),
        ("v5e-4", 4, 1, (2, 2), False),
        ("v5e-64", 64, 8, (8, 8), False),
        ("v5e-256", 256, 32, (16, 16), True),
        ("v5p-12288", 6144, 1536, (16, 16, 24), True),
        ("v6e-256", 256, 32, (16, 16), True),
        ("tpu7x-128", 128, 16, (4, 4, 4), True),
        ("tpu-v4-128", 64, 16, (4, 4, 4), True),
    ],
)
def test_the_named_slices_are_those_on_sale(
    name: str, devices: int, hosts: int, torus: tuple[int, ...], wrapped: bool
) -> None:
    setup = load(name)
    island = setup.cluster.islands[0]
    assert (island.devices, island.hosts, chips_of(setup)) == (devices, hosts, torus)
    assert island.wraps == (wrapped,) * len(torus)
    assert island.memory == setup.chips[0].hbm_bytes
    assert island.host_memory == setup.machine.host_memory == chips.generation(island.kind).machine.host_memory
    assert island.kind == setup.chips[0].name


def test_a_set_up_may_have_several_islands_or_no_torus() -> None:
    fig12 = load("2xv3-1024")
    assert [island.devices for island in fig12.cluster.islands] == [1024, 1024]
    assert [island.name for island in fig12.cluster.islands] == ["i0", "i1"]
    assert fig12.cluster.islands[0].wraps == (False, True)  # 16 x 32 chips of a pod of 32 x 32
    h100 = load("h100-64")
    assert (h100.cluster.hosts, h100.cluster.islands[0].torus) == (8, ())
    assert "more than a pod" in load("v5e-512").note
    assert "more than a pod" not in load("v5e-256").note


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("D", "no cluster 'D'.*there is: 'A', 'B', 'C'"),
        ("v4_512", "nearest: 'v4-128'"),
        ("v8-64", "no cluster 'v8-64'"),
        ("v4-7", "a tpu-v4 chip counts 2"),
        ("v5e-12", "12 devices are not whole hosts of 8"),
        ("v5e-0", "no cluster 'v5e-0'"),
        ("0xv5e-8", "no cluster '0xv5e-8'"),
        ("nowhere.toml", "there is no file nowhere.toml"),
    ],
)
def test_unknown_names_are_refused(name: str, text: str) -> None:
    with pytest.raises(Impossible, match=text):
        load(name)


# --- changed ----------------------------------------------------------------------------------------------------


def test_another_size_has_another_torus() -> None:
    assert chips_of(load("A", hosts=64)) == (8, 16)
    assert load("A", hosts=64).cluster.islands[0].wraps == (False, False)  # no axis of 32 is left
    assert load("A", hosts=512).cluster == load("A").cluster
    assert chips_of(load("A", devices_per_host=8)) == (32, 64)
    big = load("A", hosts=25_000)
    assert (big.cluster.devices, chips_of(big)) == (100_000, (200, 250))
    assert load("A", hosts=250_000).cluster.devices == 1_000_000
    assert load("v5p-512", torus=[4, 4, 16]).cluster.islands[0].torus == (4, 4, 16)


def test_the_number_of_islands_can_be_changed() -> None:
    setup = load("C", islands=64)
    assert (len(setup.cluster.islands), setup.cluster.devices, len(setup.chips)) == (64, 2048, 64)
    both = load("C", islands=2, hosts=8, spares=1)
    assert [(i.hosts, i.regular) for i in both.cluster.islands] == [(8, 7)] * 2
    assert both.note.endswith("changed: islands=2, hosts=8, spares=1")
    assert load("A", islands=1).cluster.islands[0].name == "a0"


def test_figures_can_be_changed() -> None:
    setup = load("A", dcn={"latency": "50 us"}, machine={"cores": 8}, chip={"v3": {"ici_latency": "2 us"}})
    assert (setup.dcn.latency, setup.cluster.dcn_latency, setup.machine.cores) == (50_000, 50_000, 8)
    assert setup.chips[0] == msgspec.structs.replace(chips.chip("v3"), ici_latency=2000, sources=setup.chips[0].sources)
    sources = {(of, key): source for of, key, _, source in setup.figures()}
    assert sources["tpu-v3", "ici_latency"] == sources["tpu-v3 host", "cores"] == "stated in cluster 'A'"
    assert "Cloud TPU docs" in sources["tpu-v3", "hbm_bytes"]
    assert "tpu-v3 ici_latency" not in setup.describe()
    assert "assumed: tpu-v3 core_bandwidth" in load("A").describe()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"host": 3}, "load\\(\\) has no option 'host'; nearest: 'hosts'"),
        ({"hosts": 0}, "`hosts` cannot be 0"),
        ({"hosts": 2.5}, "`hosts` cannot be 2.5"),
        ({"islands": -1}, "`islands` cannot be -1"),
        ({"devices_per_host": 3}, "`devices_per_host` is 3, but 2 devices share a tpu-v3 chip"),
        ({"torus": [3, 3]}, "has 9 devices, 512 hosts of 4 are 2048"),
        ({"torus": [2048, 1]}, "the last axis of `torus` is 1; 2 devices share a chip there"),
        ({"wraps": [True]}, "`wraps` and `block` need one entry for each axis"),
        ({"spares": 512}, "all 512 hosts are spares"),
        ({"memory": "16 GB/s"}, "`memory` cannot be '16 GB/s'; write '16 GiB', or bytes"),
        ({"dcn": {"latencies": 1}}, r"\[dcn\] has no key 'latencies'; nearest: 'latency'"),
        ({"dcn": {"bandwidth": 0}}, "`bandwidth` is zero"),
        ({"dcn": {"oversubscription": 0.5}}, "`oversubscription` cannot be 0.5"),
        ({"dcn": 3}, r"`dcn` is a table; write \[dcn\]"),
        ({"machine": {"nic": 1}}, r"\[machine\] has no key 'nic'"),
        ({"chip": {"v3": {"ici_bandwith": 1}}}, r"\[chip.tpu-v3\] has no key 'ici_bandwith'; nearest: 'ici_bandwidth'"),
        ({"chip": {"v3": {"peak_flops": 0}}}, "`peak_flops` is zero"),
        ({"chip": {"v3": {"matmul_percent": 101}}}, "`matmul_percent` is a part of the peak: at most 100"),
        ({"chip": {"mine": {"peak_flops": 1}}}, "lacks hbm_bytes, .* or say which chip it is `like`"),
        ({"kind": "v33"}, "no chip 'v33'; nearest: 'v3'"),
    ],
)
def test_impossible_changes_are_refused_with_the_remedy(changes: dict[str, object], text: str) -> None:
    with pytest.raises(Impossible, match=text):
        load("A", **changes)


# --- from a table or a file -------------------------------------------------------------------------------------


def test_the_example_in_the_docs_can_be_read() -> None:
    setup = load(EXAMPLE)
    big, flat, soon = setup.cluster.islands
    assert load(str(EXAMPLE)) == setup
    assert setup.name == "two-and-a-half"
    assert (big.torus, big.wraps, big.regular, big.devices_per_host) == ((4, 8, 8), (True,) * 3, 62, 4)
    assert (flat.torus, flat.wraps) == ((2, 4, 8), (False, False, True))
    assert (soon.kind, soon.memory) == ("v9", 256 * GIB)
    v9 = setup.chips[2]
    assert (v9.peak_flops, v9.hbm_bandwidth, v9.ici_latency) == (2 * 10**15, 8 * 10**12, 500)
    assert v9.ici_bandwidth == chips.chip("v5p").ici_bandwidth
    assert (v9.sources["hbm_bandwidth"], v9.sources["ici_latency"]) == ("a slide", f"stated in {EXAMPLE}")
    assert setup.chips[0] == chips.chip("v5p")
    assert (setup.dcn.bandwidth, setup.dcn.latency, setup.dcn.jitter) == (50 * 10**9, 25_000, 5_000)
    assert (setup.dcn.oversubscription, setup.machine.nic_bandwidth) == (2.0, 50 * 10**9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[island]]\nhost = 3", r"{file} \[\[island\]\] 0 has no key 'host'; nearest: 'hosts'"),
        ("[[island]]\nname = 'x'", r"{file} \[\[island\]\] 0 does not say how many `hosts`"),
        ("island = 3", "{file} has no islands; write \\[\\[island\\]\\]"),
        ("name = 'x'", "{file} has no islands"),
        ("isle = []", "{file} has no key 'isle'; nearest: 'island'"),
        ("[[island]\n", "{file} is no TOML"),
        ("[[island]]\nkind = 'v4'\nhosts = 4\n[dcn]\nlatency = 'soon'", r"{file} \[dcn\]: `latency` cannot be 'soon'"),
        ("[[island]]\nhosts = 4\n[[island]]\nhosts = 4", "{file}: two islands have the name 'i'"),
        ("[[island]]\nhosts = 4\ncount = 0", "`count` cannot be 0"),
        ("[[island]]\nhosts = true", "`hosts` cannot be True"),
        ("[chip]\nv4 = 3\n[[island]]\nhosts = 1", "`v4` is a table"),
        ("[chip.x]\nlike = 'v44'\n[[island]]\nhosts = 1", "no chip 'v44'; nearest: 'v4'"),
    ],
)
def test_mistakes_in_a_file_name_the_file_and_the_table(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(Impossible, match=expected.replace("{file}", ".*mine.toml")):
        load(file)


def test_the_islands_of_a_file_cannot_be_counted_by_an_option() -> None:
    table = tomllib.loads(EXAMPLE.read_text())
    with pytest.raises(Impossible, match="lists 3 islands, so `islands` cannot say how many"):
        load(table, islands=2)
    shared = table.pop("shared")
    assert load(table, hosts=8).cluster.hosts == 24
    with pytest.raises(Impossible, match="there is no host 87; hosts are 0 to 23"):
        load({**table, "shared": shared}, hosts=8)


def test_a_table_in_cores_format_is_a_set_up_too() -> None:
    setup = load({"island": [{"name": "i", "count": 2, "hosts": 3, "devices_per_host": 2}], "dcn_latency": 7000})
    assert (setup.cluster.devices, setup.chips[0].name, setup.cluster.dcn_latency) == (12, "cpu", 7000)
    assert setup.cluster.islands[0].torus == ()


def test_a_set_up_can_be_sent_to_other_processes() -> None:
    setup = load("A", hosts=64)
    assert pickle.loads(pickle.dumps(setup)) == setup
    assert hash(pickle.loads(pickle.dumps(setup.chips[0]))) == hash(setup.chips[0])


# --- units and shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        ("1.5 us", "time", 1500),
        ("2ms", "time", 2_000_000),
        (330, "time", 330),
        ("16 GiB", "bytes", 2**34),
        ("16 GB", "bytes", 16 * 10**9),
        ("100 Gb/s", "rate", 12_500_000_000),
        ("656 Gb/s", "rate", 82_000_000_000),
        ("3.35 TB/s", "rate", 3_350_000_000_000),
        ("61.5 TFLOP/s", "flops", 61_500_000_000_000),
        (2.75e14, "flops", 275_000_000_000_000),
        ("940 MHz", "frequency", 940_000_000),
        (0, "number", 0),
    ],
)
def test_quantities_are_read_with_their_units(value: object, unit: str, expected: int) -> None:
    found = quantity("here", "key", value, unit)
    assert (found, type(found)) == (expected, int)


@pytest.mark.parametrize(
    ("value", "unit"),
    [("1 GB", "rate"), ("1 gb/s", "rate"), ("-1 us", "time"), (-1, "time"), ("", "time"), (True, "number"),
     (None, "bytes"), ("1 second", "time"), (float("nan"), "time"), (float("inf"), "rate"), ("5", "time")],
)  # fmt: skip
def test_invalid_quantities_are_refused(value: object, unit: str) -> None:
    with pytest.raises(Impossible, match=r"here: `key` cannot be .*; write "):
        quantity("here", "key", value, unit)


def test_hosts_are_blocks_of_the_torus() -> None:
    assert [host_block(count, 2) for count in (1, 2, 4, 6, 8)] == [(1, 1), (2, 1), (2, 2), (3, 2), (4, 2)]
    assert [host_block(count, 3) for count in (1, 4, 8)] == [(1, 1, 1), (2, 2, 1), (2, 2, 2)]


@given(st.integers(1, 3000), st.integers(1, 8), st.sampled_from([2, 3]))
@examples(100)
def test_any_number_of_hosts_has_a_torus(hosts: int, count: int, rank: int) -> None:
    block = host_block(count, rank)
    shape = nearest_cube(hosts, block)
    assert prod(block) == count
    assert prod(shape) == hosts * count
    assert all(size % inside == 0 for size, inside in zip(shape, block, strict=True))
    assert sum(shape) <= sum((*block[:-1], block[-1] * hosts))  # at least as near as one long row


def test_the_axes_that_wrap_are_derived() -> None:
    v3, v4, h100 = chips.chip("v3"), chips.chip("v4"), chips.chip("h100")
    assert wraps((32, 32), v3) == (True, True)
    assert wraps((16, 32), v3) == (False, True)
    assert wraps((4, 4, 8), v4) == (True,) * 3
    assert wraps((2, 4, 8), v4) == (False,) * 3  # no whole cubes
    assert wraps((4, 4), h100) == (False, False)


def test_a_chip_has_the_figures_that_its_kind_needs() -> None:
    table = {"like": "v4", "devices_per_chip": 2}
    with pytest.raises(Impossible, match="several devices a chip need a `core_bandwidth`"):
        chips.chip_from("here", "mine", table, "me")
    with pytest.raises(Impossible, match="`torus_dims` is 2 or 3, or 0"):
        chips.chip_from("here", "mine", {"like": "v4", "torus_dims": 4}, "me")
    mine = chips.chip_from("here", "mine", {"like": "v4", "hbm_bytes": "1 TiB"}, "me")
    assert isinstance(mine, Chip)
    assert (mine.name, mine.hbm_bytes, mine.sources["hbm_bytes"]) == ("mine", 2**40, "me")

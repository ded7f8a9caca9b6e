"""Costs as values: stated, recorded, saved, scaled, and kept in the cache."""

import json
import threading
from pathlib import Path

import pytest

from seaway.costs import Cost, MemoryUse, synthetic
from seaway.costs import cost_cache as costs_cache
from seaway.costs.cost import disagreement
from seaway.costs.hlo import HloCollective
from seaway.errors import CostError
from sim.hardware.ici import kernel_time
from sim.hardware.kernels import Collective, Kernel
from sim.hardware.setups import load

MADE = Cost(
    name="step",
    duration=6_026_000,
    used="blend",
    source="tpu-compiler",
    estimates={"blend": 6_026_000, "cycles": 7_878_000, "roofline": 5_551_000},
    collectives=(HloCollective("all-reduce", 2**22, ((4, 1),), 4, count=8, hidden=1200),),
    memory=MemoryUse(argument=100, output=50, alias=50, temp=30, peak=130),
    flops=2.4e11,
    hbm_bytes=1e9,
    devices=32,
    target="v3:4x4",
    clock_hz=940_000_000,
    warnings=("estimates are far apart",),
    versions={"jax": "0.10.2", "libtpu": "0.0.42"},
    digest="abc",
)


# --- stated and recorded --------------------------------------------------------------------------------


def test_a_synthetic_computation_is_a_time_and_its_collectives() -> None:
    cost = synthetic("330us", allreduce="4B", permute=("64 MiB", ((8, 4),)), temp="1 GiB", name="fig9")
    assert cost.kernel == Kernel(
        name="fig9",
        duration=330_000,
        collectives=(Collective("all-reduce", 4), Collective("permute", 2**26, ((8, 4),))),
        temp=2**30,
        source="stated",
    )


def test_several_computations_in_one_cost_so_many_times_each() -> None:
    fused = synthetic("2us", allreduce="4B", count=128).kernel
    assert fused.duration == 256_000
    assert fused.collectives == (Collective("all-reduce", 4, (), 128),)


def test_a_recorded_time_is_used_unchanged() -> None:
    cost = Cost.from_recorded(1234, "layer")
    assert (cost.kernel.duration, cost.kernel.source, cost.kernel.name) == (1234, "recorded", "layer")
    for wrong in (-1, 1.5, True, "3us"):
        with pytest.raises(CostError, match="whole number of nanoseconds"):
            Cost.from_recorded(wrong)  # type: ignore[arg-type]


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(CostError, match="at least 1"):
        synthetic("1us", count=0)


# --- choosing -------------------------------------------------------------------------------------------


def test_another_estimate_can_be_chosen() -> None:
    assert MADE.using("cycles").kernel.duration == 7_878_000
    assert MADE.using("cycles").used == "cycles"
    with pytest.raises(CostError, match="there is: blend, cycles, roofline"):
        MADE.using("optimal")


def test_a_time_can_be_scaled_and_the_cost_says_so() -> None:
    half = MADE.scaled(0.5)
    assert half.duration == 3_013_000
    assert [one.hidden for one in MADE.collectives] == [1200, *[0] * (len(MADE.collectives) - 1)]
    assert [one.hidden for one in half.collectives] == [600, *[0] * (len(MADE.collectives) - 1)], (
        "half the work to hide behind"
    )
    assert [one.nbytes for one in half.collectives] == [one.nbytes for one in MADE.collectives]
    assert any("0.5" in note for note in half.notes)
    with pytest.raises(CostError, match="positive"):
        MADE.scaled(0)


def test_collectives_that_the_compiler_hides_behind_work_cost_nothing() -> None:
    """This holds on the links of the slice: if they are fast enough, the collective adds no time."""
    setup = load("v5e-64")
    island, chip = setup.cluster.islands[0], setup.chips[0]

    def takes(hidden: int) -> int:
        exchange = HloCollective("all-gather", 1 << 20, (), 64, count=3, hidden=hidden)
        cost = Cost(name="step", duration=1_000_000, used="blend", source="tpu-compiler", collectives=(exchange,))
        return kernel_time(cost.kernel, island.whole, island, chip)

    each = (takes(0) - 1_000_000) // 3
    assert each > 10_000
    assert takes(10_000) == takes(0) - 3 * 10_000
    assert takes(each) == takes(2 * each) == 1_000_000


def test_estimates_that_differ_by_more_than_a_factor_of_two_are_pointed_out() -> None:
    assert disagreement({"blend": 2_000, "cycles": 3_900}) == ""
    assert "2.5x apart: blend 2 us, cycles 5 us" in disagreement({"blend": 2_000, "cycles": 5_000, "optimal": 3_000})
    assert disagreement({"blend": 2, "cycles": 900}) == "", "too short to matter"
    assert disagreement({"blend": 2_000}) == ""


def test_a_cost_prints_a_description() -> None:
    text = str(MADE)
    for part in ("6.026 ms", "blend, tpu-compiler", "32 devices of v3:4x4", "8 x all-reduce of 4 MiB among 4",
                 "beside 1.2 us of work", "warning: estimates are far apart"):  # fmt: skip
        assert part in text


# --- saved ----------------------------------------------------------------------------------------------


def test_a_cost_can_be_read_back_from_its_json(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    text = MADE.to_json(path)
    assert Cost.from_json(path) == Cost.from_json(str(path)) == Cost.from_json(text) == MADE
    assert Cost.from_json(text).to_json() == text, "the same bytes each time"


@pytest.mark.parametrize("text", ["{}", '{"name": 3}', "{", '{"name":"x","duration":1.5,"used":"u","source":"s"}'])
def test_json_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CostError, match="not a saved cost"):
        Cost.from_json(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CostError, match=r"nothing\.json"):
        Cost.from_json(tmp_path / "nothing.json")


def test_a_cost_of_another_format_is_refused() -> None:
    table = json.loads(MADE.to_json()) | {"format": 0}
    with pytest.raises(CostError, match="compute it again"):
        Cost.from_json(json.dumps(table))


# --- the cache ------------------------------------------------------------------------------------------


class CountedComputation:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Cost:
        self.times += 1
        return MADE


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "costs"


def test_a_cached_cost_is_not_computed_again() -> None:
    compute = CountedComputation()
    first = costs_cache.cost("key", "step", compute)
    again = costs_cache.cost("key", "another name", compute)
    assert compute.times == 1
    assert (first.name, again.name, again.duration) == ("step", "another name", first.duration)
    costs_cache.cost("key", "step", compute, refresh=True)
    costs_cache.cost("other key", "step", compute)
    assert compute.times == 3


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"name": "x"}', b"null"])
def test_a_corrupt_cache_file_counts_as_missing(own_cache: Path, content: bytes) -> None:
    compute = CountedComputation()
    costs_cache.cost("key", "step", compute)
    (own_cache / "key.json").write_bytes(content)
    assert costs_cache.cost("key", "step", compute) == MADE
    assert compute.times == 2
    assert costs_cache.cost("key", "step", compute) == MADE, "the file was repaired"
    assert compute.times == 2


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEAWAY_CACHE", str(tmp_path / "file"))
    assert costs_cache.cost("key", "step", CountedComputation()) == MADE


def test_many_processes_may_write_the_same_entry_at_once(own_cache: Path) -> None:
    writers = [threading.Thread(target=costs_cache.cost, args=("key", "step", CountedComputation())) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [path.name for path in own_cache.iterdir()] == ["key.json"]
    assert Cost.from_json(own_cache / "key.json") == MADE


def test_the_cache_lies_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAWAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert costs_cache.folder() == tmp_path / "xdg" / "seaway" / "costs"


def test_other_versions_and_other_parts_have_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {costs_cache.key("a", "b"), costs_cache.key("ab", ""), costs_cache.key("a")}
    monkeypatch.setattr("importlib.metadata.version", lambda package: "99")
    keys.add(costs_cache.key("a", "b"))
    assert len(keys) == 4

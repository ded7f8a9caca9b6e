"""Prediction: what a seed draws, how measurements are evaluated, and two cases played for real and in simulation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from experiments.bench.prediction import freezing, prediction
from experiments.bench.prediction.alone import Round, of_rounds
from experiments.bench.prediction.cases import Case, Work, drawn
from experiments.bench.prediction.measuring import Spell, together, used
from experiments.bench.prediction.playing import Failed, cluster_of, real
from experiments.bench.prediction.programs import Taken, alone_ns, at_speed, computation, content, kernel, key_of
from experiments.bench.prediction.table import Row, rows_of, spread_of, summary

SEEDS = st.integers(0, 2**32)


# --- evaluating a measurement --------------------------------------------------------------------------


def a_case(kind: str = "clients", **more: object) -> Case:
    return msgspec.convert(
        {"number": 1, "kind": kind, "platform": "timed", "hosts": 2,
         "works": [{"op": "timed", "size": 1000}], "weights": [1, 3], **more},
        Case,
    )  # fmt: skip


def calls(first: int, each: int, number: int) -> Spell:
    """Calls one after the other, in nanoseconds."""
    begun = [first + at * each for at in range(number)]
    return Spell(begun, [at + each for at in begun])


def test_clients_are_compared_while_all_of_them_are_there() -> None:
    """The second comes at 1 s and goes at 3 s. In between it makes 10 calls, and the first one 20."""
    second = 1_000_000_000
    found = together(a_case(), [calls(0, second // 10, 100), calls(second, second // 5, 10)])
    assert found["throughput"] == pytest.approx(30 / 2)
    assert found["share"] == pytest.approx(1 / 3)  # of the heavier client
    assert found["latency p50"] == pytest.approx(0.1)
    assert found["latency p99"] == pytest.approx(0.2)


def test_utilisation_counts_the_pure_durations_of_gangs_while_all_clients_are_there() -> None:
    gangs = pd.DataFrame(
        {
            "client": ["a", "a", "a", "b", "b", "b"],
            "step": ["one", "one", "one", "two", "two", "two"],
            "devices": [2, 2, 2, 1, 1, 1],
            "ended_us": [0.0, 50.0, 150.0, 10.0, 60.0, 110.0],
        }
    )
    # from 10 us until 110 us: one of `one` on two devices, and two of `two` on one, of 2 x 100 us
    assert used(gangs, {"one": 20_000, "two": 30_000}, 2) == pytest.approx((2 * 20 + 2 * 30) / 200)


def test_rounds_are_scaled_to_one_speed_before_they_are_compared() -> None:
    found = of_rounds([Round(1e-3, 1e-3, 100), Round(1.5e-3, 1.5e-3, 150), Round(2e-3, 2e-3, 200)])
    assert (found.ns, found.reference) == (1_500_000, 150)
    assert found.spread == pytest.approx(0, abs=1e-9)
    assert at_speed({"it": found}, 300)["it"].ns == 3_000_000


# --- statistics -------------------------------------------------------------------------------------


def a_row(error: float, spread: float = 0.0, quantity: str = "throughput", kind: str = "clients") -> Row:
    """A row at a speed of 1, for which the prediction is the same."""
    return Row(1, "timed", kind, "a case", quantity, 1 + error, 1.0, error, 1.0, 1 + error, error, spread)


def test_a_row_is_the_median_of_the_repeats_with_its_signed_error_and_spread() -> None:
    measured = [{"throughput": 88.0}, {"throughput": 104.0}, {"throughput": 100.0}]
    (row,), without = rows_of(a_case(), {"throughput": 95.0}, measured, {"throughput": 95.0}, [110, 110, 110], 100)
    assert row.measured == 100.0
    assert row.speed == pytest.approx(1.1)
    assert row.error == row.off == pytest.approx(-0.05)
    assert row.spread == pytest.approx(0.12)
    assert row.noisy
    assert not without


def test_repeats_agree_if_they_do_unscaled_or_at_one_speed_of_the_machine() -> None:
    references = [100, 200, 120]
    assert spread_of("hop", [10.0, 20.0, 12.0], references) == pytest.approx(0, abs=1e-9)
    assert spread_of("throughput", [12.0, 6.0, 10.0], references) == pytest.approx(0, abs=1e-9)
    assert spread_of("hop", [10.0, 10.2, 10.1], references) == pytest.approx(0.1 / 10.1), "it waits for a clock"
    assert spread_of("hop", [10.0, 14.0, 10.0], references) > 0.15


def test_a_row_without_a_counterpart_is_named_and_not_dropped() -> None:
    rows, without = rows_of(
        a_case(), {"share": 0.5, "hop": 1.0}, [{"share": 0.5}, {"share": 0.0}], {"share": 0.5}, [1, 1], 1
    )
    assert not rows
    assert without == ["share", "hop"]


def test_noisy_rows_do_not_count_in_the_first_figure() -> None:
    said = summary([a_row(0.01), a_row(0.03), a_row(9.0, spread=0.11)])
    first, noisy, both = (text.split() for text in said.splitlines()[2:5])
    assert first == ["repeats", "within", "10%", "2", "2.0%", "2.9%", "+2.0%"]
    assert noisy == ["repeats", "farther", "than", "10%", "1", "900.0%", "900.0%", "+900.0%"]
    assert both[:3] == ["both", "3", "3.0%"]
    assert "15%: met (as it was foretold: met)" in said


# --- what may go wrong --------------------------------------------------------------------------------


def test_a_case_that_exceeds_its_bound_is_ended() -> None:
    found = real(drawn(1, 1, ["timed"])[0], {}, 1, 0.1, bound=0.01)
    assert isinstance(found, Failed)
    assert found.why.startswith("one_case took more than 0.01 s")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        prediction.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_unsuitable_calibrations_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away, broken, bare = tmp_path / "away.toml", tmp_path / "broken.toml", tmp_path / "bare.toml"
    broken.write_text("[")
    bare.write_text('[[island]]\nname = "i"\nkind = "cpu"\nhosts = 1\ndevices_per_host = 1\n')
    assert f"there is no file {away}" in refused(["--calibration", str(away)], capsys)
    assert f"{broken} is no TOML" in refused(["--calibration", str(broken)], capsys)
    assert f"--calibration {bare} has no [profile]" in refused(["--calibration", str(bare)], capsys)
    whole = tmp_path / "timed.toml"
    whole.write_text(CLUSTER)
    said = refused(["--platform", "cpu", "--calibration", str(whole)], capsys)
    assert f"{whole} is of timed devices; --platform asks for cpu" in said
    assert "give one" in refused(["--platform", "timed", "--calibration", str(whole), str(whole)], capsys)


def taken_times(work: Work, hosts: int, more: Taken, called: Taken | None = None) -> dict[str, Taken]:
    """Make times: of one more in a computation, and of one that is called; all else is the same."""
    return {key_of(work, hosts): more, key_of(work, hosts, called=True): called or more}


@given(st.integers(1, 10**6), st.floats(0, 4), st.integers(1, 128))
def test_a_computation_that_waits_for_peers_uses_the_cores_only_while_it_computes(
    ns: int, cores: float, times: int
) -> None:
    work = Work("reduce", 1)
    found = kernel(work, 2, taken_times(work, 2, Taken(ns, 0.0, cores, 100)), times)
    assert times <= found.duration <= max(1, ns) * times
    (one,) = found.collectives
    assert (one.kind, one.count) == ("all-reduce", times)
    assert one.hidden * times == found.duration  # its time on the links has such work in it


@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_a_sum_takes_its_measured_time_in_the_simulator(hosts: int, tmp_path: Path) -> None:
    """The machine has so many cores that no thread waits."""
    file, work = tmp_path / "cpu.toml", Work("reduce", 1)
    file.write_text(CLUSTER.replace("cores = 2", "cores = 64"))
    alone = taken_times(work, hosts, Taken(1, 0.0, 1.0, 100), Taken(400_000, 0.0, 0.25, 100, inline=True))
    case = Case(number=1, kind="OpByOp", platform="cpu", hosts=hosts, works=(work,))
    table = cluster_of(file, case, alone)
    with sw.simulate(table, hosts=hosts, progress=False) as session:
        step = computation(work, sw.slice(devices=hosts), alone)
        step(content(work, hosts)).block_until_ready()
        (row,) = session.trace.gangs().to_dict("records")
    assert row["duration_us"] == pytest.approx(400, rel=0.01)
    found = kernel(work, hosts, alone, 1)
    assert (found.duration, found.inline) == (100_000, True)


def test_the_first_of_several_in_a_computation_takes_as_long_as_a_called_one() -> None:
    work = Work("matmul", 64)
    alone = taken_times(work, 4, Taken(7000, 0.0, 1.0, 100), Taken(9000, 0.0, 1.7, 100))
    found = kernel(work, 4, alone, 3)
    assert (found.duration, found.collectives) == (9_000 + 2 * 7_000, ())
    assert alone_ns(work, 4, alone, 3) == 23_000


def test_devices_on_the_machines_own_cores_are_the_cpus(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(CLUSTER)
    assert freezing.platform_of(file) == "timed"
    file.write_text(CLUSTER.replace("python = true", "python = true\ndevices = true"))
    assert freezing.platform_of(file) == "cpu"


def test_the_speed_of_the_machine_is_read_from_the_note_of_the_calibration(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('note = "measured; the reference took 3.25 ms (spread 2 %); not measured: x"\n' + CLUSTER)
    assert freezing.speed_of(file) == 3_250_000


# --- for real ---------------------------------------------------------------------------------------------


@pytest.mark.full
def test_two_cases_are_predicted_and_measured_by_the_same_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "timed.toml"
    cluster.write_text('note = "the reference took 180 us"\n' + CLUSTER)
    out = tmp_path / "out"
    words = ["--platform", "timed", "--cases", "2", "--calibration", str(cluster), "--out", str(out)]
    prediction.main([*words, "--seed", "2", "--repeats", "2", "--spell", "0.1", "--bound", "60"])
    said = capsys.readouterr().out
    assert "not compared" not in said
    rows = pd.read_csv(out / "prediction.csv")
    first, second = drawn(2, 2, ["timed"])
    assert list(dict.fromkeys(rows["case"])) == [first.title, second.title]
    for case in (first, second):
        quantities = set(rows.loc[rows["number"] == case.number, "quantity"])
        assert {"throughput", "latency p50", "latency p99", "utilisation"} <= quantities
    assert (rows[["predicted", "measured", "then", "speed"]] > 0).all().all()
    assert "aim: median <= 5%, 95 % <= 15%" in said


CLUSTER = """
name = "by hand"
[[island]]
name = "local"
kind = "cpu"
hosts = 2
devices_per_host = 1
[dcn]
latency = "60 us"
bandwidth = "1 GB/s"
[[shared]]
cores = 2
hosts = true
controller = true
clients = true
python = true
one_process = [["controller", "clients"], ["hosts"]]
[profile]
like = "seaway"
fanout = 23
"""

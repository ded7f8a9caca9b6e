"""The file says what was measured, the simulator reads it as it was meant, and what was not measured is not in it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaway.tools.calibrating import calibration as rooms
from seaway.tools.calibrating.calibration import Figure
from sim.hardware.setups import load
from sim.hardware.toml_tables import quantity

from .made import COSTS, calibration


@given(st.integers(0, 10**13))
def test_times_are_read_back_to_the_nanosecond(nanoseconds: int) -> None:
    assert quantity("a test", "it", rooms.time_text(nanoseconds), "time") == nanoseconds


@given(st.floats(0, 1e15))
def test_rates_are_read_back_to_four_digits(rate: float) -> None:
    assert quantity("a test", "it", rooms.rate_text(rate, "B/s"), "rate") == pytest.approx(rate, rel=5e-4, abs=1)
    assert quantity("a test", "it", rooms.rate_text(rate, "FLOP/s"), "flops") == pytest.approx(rate, rel=5e-4, abs=1)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read_back(text: str) -> None:
    assert tomllib.loads(f"text = {rooms.string(text)}")["text"] == text


def test_the_simulator_reads_the_written_values(tmp_path: Path) -> None:
    setup = load(calibration().save(tmp_path / "mine.toml"))
    assert setup.name == "mine"
    assert (setup.cluster.hosts, setup.cluster.devices) == (2, 2)
    assert (setup.dcn.latency, setup.dcn.bandwidth) == (12_345, 1_100_000_000)
    assert setup.dcn.sources["latency"] == "measured: here; spread 12%"
    assert setup.chips[0].peak_flops == 87_650_000_000
    assert setup.machine.cores == 2
    (shared,) = setup.shared
    assert (shared.cores, shared.hosts, shared.python, shared.devices) == (2, (0, 1), True, True)
    assert shared.one_process == (("controller", "clients"),)
    profile = setup.profile
    assert profile is not None
    assert profile.status == "measured"
    assert {name: getattr(profile, name) for name in COSTS if name not in ("literal", "sum")} == {
        name: value for name, value in COSTS.items() if name not in ("literal", "sum")
    }
    assert (profile.send_byte_ps, profile.stall) == (271, 1_130_000)
    assert profile.sources["step"] == "measured: step; spread 10%"


def test_timed_devices_are_one_process_and_take_no_cores(tmp_path: Path) -> None:
    (shared,) = load(calibration("timed").save(tmp_path / "mine.toml")).shared
    assert shared.one_process == (("controller", "clients"), ("hosts",))
    assert not shared.devices


def test_on_an_accelerator_unmeasured_values_are_those_of_a_named_chip(tmp_path: Path) -> None:
    path = calibration("cuda").save(tmp_path / "mine.toml")
    assert tomllib.loads(path.read_text())["chip"]["cuda"]["like"] == "h100"
    assert load(path).chips[0].peak_flops == 87_650_000_000


def test_values_that_were_not_measured_are_left_out_and_named(tmp_path: Path) -> None:
    figures = tuple(figure for figure in calibration().figures if figure.name not in ("bandwidth", "enqueue"))
    made = calibration(figures=figures, missing=("enqueue (profile 'seaway' holds)",))
    path = made.save(tmp_path / "mine.toml")
    table = tomllib.loads(path.read_text())
    assert "bandwidth" not in table["dcn"]
    assert "enqueue" not in table["profile"]["costs"]
    assert "not measured: enqueue (profile 'seaway' holds)" in table["note"]
    assert "not measured: enqueue (profile 'seaway' holds)" in made.table()
    assert load(path).profile is not None


def test_the_note_says_how_fast_the_machine_was() -> None:
    assert "the reference took 4.2 ms (spread 2%)" in calibration().note


def test_information_for_the_reader_alone_is_not_in_the_file() -> None:
    made = calibration()
    assert "for the reader" not in made.text()
    assert any(line.startswith("hop ") for line in made.table())


def test_figures_that_vary_too_much_are_named() -> None:
    assert calibration().warnings == []
    wild = (
        Figure("speed", 10, "ns", 0.11, "the reference"),
        Figure("step", 10, "ns", 0.3, "measured", "costs.step"),
        Figure("send", 10, "ns", 0.2, "measured", "costs.send"),
    )
    assert calibration(figures=wild).warnings == ["speed: spread 11%, more than 10%", "step: spread 30%, more than 25%"]


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("before")

    def interrupted(*names: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibration().save(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]

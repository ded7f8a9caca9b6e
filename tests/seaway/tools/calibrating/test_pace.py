"""The machine's speed, measured all the time by a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from seaway.tools.calibrating.pace import FEW, WINDOW, Pace, PaceBeat, mean, paced

SECOND = 1_000_000_000


def written(path: Path, beats: list[PaceBeat]) -> Pace:
    path.write_text("".join("{} {} {}\n".format(*beat) for beat in beats))
    return Pace(path)


def test_the_mean_speed_is_that_of_continuous_work() -> None:
    """Half of the time at 100 and half at 200: of three items, two are done at 100."""
    assert mean([PaceBeat(0, 0, 100), PaceBeat(1, 0, 200)]) == pytest.approx(400 / 3)


def test_only_measurements_between_the_two_moments_count(tmp_path: Path) -> None:
    pace = written(tmp_path / "pace", [PaceBeat(at, 0, 100 if at < 50 else 300) for at in range(100)])
    assert pace.between(0, 49) == pytest.approx(100)
    assert pace.between(50, 99) == pytest.approx(300)


def test_an_incomplete_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "pace"
    pace = written(path, [PaceBeat(at, 0, 100) for at in range(FEW)])
    with path.open("a") as file:
        file.write("10 0 1")
    assert pace.between(0, 4) == pytest.approx(100)
    with path.open("a") as file:
        file.write("00\n")
    assert pace.between(0, 10) == pytest.approx(100)


def test_the_variation_of_a_machine_is_computed_from_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 9 * SECOND)
    even = [PaceBeat(at * SECOND // 10, 0, 100) for at in range(100)]
    assert written(tmp_path / "even", even).all().spread == 0
    odd = [beat._replace(took=100 + 100 * (beat.at // WINDOW % 2)) for beat in even]
    assert written(tmp_path / "odd", odd).all().spread > 0.3


def test_every_core_that_we_may_use_is_measured_while_it_is_open(tmp_path: Path) -> None:
    with paced(tmp_path) as pace:
        begun = time.monotonic_ns()
        while len({line.split()[1] for line in pace.path.read_text().splitlines()}) < len(os.sched_getaffinity(0)):
            time.sleep(0.01)
        assert pace.between(begun, time.monotonic_ns()) > 0
        assert pace.all().value > 0
    size = pace.path.stat().st_size
    time.sleep(0.05)
    assert pace.path.stat().st_size == size, "the measuring process has ended"

"""The benchmark of cliffs: what it measures of a play, and what it says of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isclose

import pytest

from experiments.bench.frame import processes
from experiments.bench.frame.options import Table
from experiments.bench.simulator import cliffs
from experiments.bench.simulator.cliff_programs import Play
from experiments.bench.simulator.cliff_rows import FLAT, LINEAR, PLAIN, ROWS, Row
from experiments.bench.simulator.cliffs import Line, Meter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU time; each look at it takes the next one."""
    times = [1.0, 3.0, 10.0]
    ticks: Iterator[float] = iter(times)  # sees later changes
    monkeypatch.setattr(cliffs, "process_time", lambda: next(ticks))
    return times


def test_a_meter_takes_the_time_of_a_gang_without_those_that_came_before(clock: list[float]) -> None:
    meter = Meter(warm=2, gangs=4)
    assert [meter(1), meter(1), meter(3), meter(1), meter(1)] == [False, False, False, True, True]
    assert meter.us is not None
    assert isclose(meter.us, 1e6 * (3.0 - 1.0) / 4)


def endless() -> None:
    """A play that never ends, once 2 gangs were made."""

    def program(play: Play, size: int) -> None:
        play.made(2)
        while True:
            pass

    row = Row("", program, warm=lambda size: 2, gangs=lambda size: 10)
    cliffs.played(row, 0, 0, 1, {"row": [], "base": [7.0], "over": "row"})


def test_a_play_that_takes_too_long_ends_with_what_is_known() -> None:
    said = processes.answer(endless, bound=300)
    assert said.pop("at_least") >= 90_000  # 1 s of CPU, and 10 gangs to be made in it
    assert said == {"row": [], "base": [7.0], "over": "row"}


def test_growth_is_the_steepest_exponent_between_sizes_that_are_far_apart() -> None:
    def of(**costs: float) -> float | None:
        return cliffs.growth([Line(int(size[1:]), us, 1.0) for size, us in costs.items()])

    assert of(n1=10, n10=10, n100=10) == 0
    assert isclose(of(n1=10, n10=10, n100=1000) or 0, 2)  # from 10 to 100
    assert of(n1=10, n2=1000) is None  # one run differs from another by more than that says


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (Line(1, 199.0, 100.0), "met"),
        (Line(1, 201.0, 100.0), "BEYOND"),
        (Line(1, 500.0, 100.0, "row"), "OVER 9 s"),
        (Line(1, None, 100.0, "row"), "OVER 9 s, at start-up"),
        (Line(1, 300.0, None, "base"), "met"),  # what it is compared with takes longer than all of it
        (Line(1, None, None, "failed"), "FAILED"),
    ],
)
def test_a_line_has_a_verdict(line: Line, words: str) -> None:
    assert cliffs.verdict(PLAIN._replace(bound=2), line, 9) == words


@pytest.mark.parametrize(
    ("costs", "law", "good", "words"),
    [
        ((100.0, 100.0), FLAT, True, ["met", "met"]),
        ((50.0, 190.0), LINEAR, True, ["met", "met"]),
        ((50.0, 190.0), FLAT, False, ["met", "GROWS"]),
        ((1.0, 190.0), LINEAR, False, ["met", "GROWS"]),
        ((100.0, 900.0), FLAT, False, ["met", "BEYOND, GROWS"]),
        ((210.0, 190.0), FLAT, False, ["BEYOND", "met"]),
    ],
)
def test_a_row_is_good_if_all_its_lines_are_and_it_does_not_grow(
    costs: tuple[float, float], law: int, good: bool, words: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found = dict(zip((4, 16), costs, strict=True))
    monkeypatch.setitem(ROWS, "read", PLAIN._replace(sizes=(4, 16), law=law))
    monkeypatch.setattr(cliffs, "measured", lambda name, size, *_: Line(size, found[size], 100.0))
    table = Table("row <20", *(f"{at} >9" for at in range(7)), "verdict <20")
    assert cliffs.show("read", table, quick=False, limit=9) == good
    said = capsys.readouterr().out.splitlines()
    assert [re.split(r"\s{2,}", line.strip())[-1] for line in said] == words


def test_a_row_that_is_not_good_is_named_with_its_command_and_decides_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cliffs, "show", lambda name, *_: name != "read")
    assert cliffs.main(["--rows", "read", "arrays", "--quick"]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 rows are as they should be" in said
    assert "  not: python -m experiments.bench cliffs --rows read --quick\n" in said
    assert cliffs.main(["--rows", "arrays"]) == 0


def test_a_row_is_measured_beside_what_it_is_compared_with() -> None:
    """In a process of its own. How long it takes is the machine's affair."""
    found = cliffs.measured("transfers", 2, hosts=4, rounds=1, limit=60)
    assert found.us is not None
    assert found.base is not None
    assert (found.size, found.over) == (2, "")

"""What-ifs beside real runs, tiny: rows are computed correctly, and each of the settings is really another world."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.protocol.messages import Submit
from experiments.bench.prediction import whatif
from experiments.bench.prediction.whatif import QUESTIONS, RECORDED, WEIGHTS, Question, Row, rows_of, summary
from seaway.tools.whatif.workload import Workload, read

from .test_prediction import CLUSTER

QUANTITIES = ["makespan", *(f"latency p50 {name}" for name in WEIGHTS)]


def tries(*times: float) -> list[list[whatif.Values]]:
    """Values by record: these under the recorded settings, half of them under all others."""
    return [[{"makespan": one if at == 0 else one / 2} for at in range(len(QUESTIONS))] for one in times]


def test_each_record_is_compared_with_the_runs_behind_it() -> None:
    rows = rows_of("timed", tries(1.1, 2.4, 2.7), tries(1.0, 2.0, 3.0))
    assert [row.question for row in rows] == [asked.title for asked in QUESTIONS]
    for row in rows:
        half = 1 if row.question == RECORDED.title else 2
        assert (row.predicted, row.measured) == (2.4 / half, 2.0 / half)
        assert row.error == pytest.approx(0.1), "the median of +10 %, +20 % and -10 %"
        assert row.spread == pytest.approx(0.2)
        assert row.foretold == row.change == pytest.approx(0.0 if half == 1 else -0.5)


def test_the_summary_shows_the_error_of_taking_the_record_as_the_answer() -> None:
    row = Row("timed", "fifo", "makespan", 2.2, 2.0, 0.1, 0.0, -0.4, -0.5)
    same = Row("timed", RECORDED.title, "makespan", 3.0, 4.0, -0.25, 0.0, 0.0, 0.0)
    medians = {line[:34].strip(): line.split()[-3:] for line in summary([row, same]).splitlines()[1:]}
    assert medians[RECORDED.title] == ["25.0%", "25.0%", "-25.0%"]
    assert medians["changed settings"] == ["10.0%", "10.0%", "+10.0%"]
    assert medians["had the record been the answer"] == ["100.0%", "100.0%", "+100.0%"]


def test_each_question_is_really_run_and_predicted_from_the_log_of_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = tmp_path / "timed.toml"
    cluster.write_text(CLUSTER)
    whatif.main(["--platform", "timed", "--calibration", str(cluster), "--records", "1", "--calls", "2"])
    said = capsys.readouterr().out
    at = [said.index(f"\n{asked.title}\n") for asked in QUESTIONS]
    assert at == sorted(at)
    for quantity in QUANTITIES:
        assert said.count(f"    {quantity} ") == len(QUESTIONS)
    assert f"changed settings{'':18}{(len(QUESTIONS) - 1) * len(QUANTITIES):>6}" in said


def recorded(asked: Question, path: Path) -> Workload:
    whatif.really("timed", asked, 1, path)
    return read(path)


def test_a_session_runs_under_the_settings_in_question(tmp_path: Path) -> None:
    for at in (1, 3, 4):  # another policy, dispatch, window
        asked = QUESTIONS[at]
        found = recorded(asked, tmp_path / f"{at}.log")
        assert found.policy.lower() == asked.policy.replace("_", "")
        assert found.config.window == (asked.window or found.config.window)
        runs = {person.name: person.runs for person in found.people if person.name in WEIGHTS}
        assert runs == WEIGHTS
        dispatches = {
            made.call.dispatch for person in found.people for made in person.calls if isinstance(made.call, Submit)
        }
        assert dispatches == {asked.dispatch or "parallel"}

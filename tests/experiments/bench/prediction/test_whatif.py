"""What-ifs beside real runs, tiny: rows are computed correctly, and each of the settings is really another world."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.protocol.messages import Submit
from experiments.bench.prediction import whatif
from experiments.bench.prediction.whatif import QUESTIONS, RECORDED, WEIGHTS, Row, rows_of, summary
from seaway.tools.whatif import workload
from seaway.tools.whatif.workload import Workload

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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, logs, read = tmp_path / "timed.toml", list[Workload](), workload.read
    cluster.write_text(CLUSTER)

    def reads(path: Path) -> Workload:
        logs.append(read(path))
        return logs[-1]

    monkeypatch.setattr(workload, "read", reads)
    whatif.main(["--platform", "timed", "--calibration", str(cluster), "--records", "1", "--calls", "1"])
    said = capsys.readouterr().out
    at = [said.index(f"\n{asked.title}\n") for asked in QUESTIONS]
    assert at == sorted(at)
    for quantity in QUANTITIES:
        assert said.count(f"    {quantity} ") == len(QUESTIONS)
    assert f"changed settings{'':18}{(len(QUESTIONS) - 1) * len(QUANTITIES):>6}" in said
    for asked, log in zip(QUESTIONS, [logs[0], *logs[2:]], strict=True):  # the second one is read to predict
        assert log.policy.lower() == asked.policy.replace("_", "")
        assert log.config.window == (asked.window or log.config.window)
        assert {person.name: person.runs for person in log.people if person.name in WEIGHTS} == WEIGHTS
        calls = [made.call for person in log.people for made in person.calls if isinstance(made.call, Submit)]
        assert {call.dispatch for call in calls} == {asked.dispatch or "parallel"}

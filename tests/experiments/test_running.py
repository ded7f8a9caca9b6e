"""From options to files: tidy data in two forms, a figure in two, findings; the same bytes each time."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.framework import BadOption, catalogue, run
from experiments.framework.commands import main
from seaway.tools import sweeping
from seaway.tools.sweeping import gathering

from .measures import toy

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "experiments.toy", toy())
    monkeypatch.setitem(catalogue.EXPERIMENTS, "toy", "doubles hosts")
    monkeypatch.setattr(catalogue, "names", lambda: ["toy"])
    for module in (sweeping, gathering):
        monkeypatch.setattr(module, "cores", lambda: 1)  # other processes do not know it


def test_a_table_is_tidy() -> None:
    frame = run("toy", hosts=[4, 8]).frame
    assert list(frame.columns) == ["hosts", "seed", "policy", "doubled", "paper", "error"]
    assert list(frame["doubled"]) == [8.0, 16.0]
    assert frame["error"].iloc[0] == pytest.approx(-0.2)
    assert pd.isna(frame["paper"].iloc[1])


def test_long_tables_are_separate_files_that_name_the_rows() -> None:
    ticks = run("toy", hosts=[2, 1]).extra["ticks"]
    assert list(ticks["row"]) == [0, 0, 1]
    assert list(ticks["at"]) == [0, 1, 0]


def test_all_files_are_written(tmp_path: Path) -> None:
    result = run("toy", out=tmp_path)
    names = {path.name for path in result.files}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert names == {"toy.parquet", "toy.csv", "toy-ticks.parquet", "toy-ticks.csv", "toy.png", "toy.svg", "toy.md"}
    assert pd.read_parquet(tmp_path / "toy.parquet").equals(result.frame)
    assert (tmp_path / "toy.csv").read_text().splitlines()[1] == "2,0,fifo,4.0,,"
    text = (tmp_path / "toy.md").read_text()
    assert "At 4 hosts it is 8." in text
    assert "Again: `python -m experiments toy`" in text


def test_the_files_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        run("toy", out=tmp_path / folder)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_an_unknown_experiment_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadOption, match="no experiment 'toi'; did you mean toy"):
        run("toi")


def test_an_experiment_runs_in_processes_from_standard_input(tmp_path: Path) -> None:
    """Its processes do not run the user's main file: standard input can be read only once."""
    text = """
from experiments.framework import run
result = run("fig5", system="jax", mode="opbyop", hosts=[2, 8], jobs=2)
print(list(result.frame["hosts"]), result.failed)
"""
    done = subprocess.run([sys.executable, "-"], input=text, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.stdout == "[2, 8] []\n", done.stderr


# --- the command line -------------------------------------------------------------------------------------


def test_the_command_line_runs_an_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", "--hosts", "4", "--out", str(tmp_path), "--jobs=1"]) == 0
    said = capsys.readouterr().out
    assert "At 4 hosts it is 8." in said
    assert str(tmp_path / "toy.png") in said
    assert list(pd.read_csv(tmp_path / "toy.csv")["hosts"]) == [4]


def test_all_runs_all_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("# toy: doubles hosts") == 1


def test_an_experiment_that_fails_is_reported_and_the_rest_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["toy", "--hosts", "2,13", "--out", str(tmp_path), "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "INCOMPLETE: 1 configurations were measured; 1 failed." in said
    assert "failed: hosts=13, seed=0, policy=fifo: ValueError: thirteen hosts fell over" in said
    assert list(pd.read_csv(tmp_path / "toy.csv")["hosts"]) == [2]


def test_if_all_experiments_fail_the_reasons_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", "--hosts", "13", "--out", str(tmp_path), "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "NOTHING could be measured." in said
    assert "failed: hosts=13, seed=0, policy=fifo: ValueError: thirteen hosts fell over" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["toi"], "no experiment 'toi'; did you mean toy?"),
        (["toy", "--host", "3"], "no option --host; did you mean --hosts?"),
        (["toy", "--hosts", "0"], "--hosts is at least 1, not 0"),
        (["toy", "--policy", "first"], "--policy cannot be 'first'"),
        (["toy", "hosts"], "no option hosts; did you mean --hosts?"),
        (["toy", "--hosts"], "argument --hosts: expected one argument"),
    ],
)
def test_mistakes_are_reported_before_anything_runs(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    assert main([*words, *([] if words[-1] == "--hosts" else ["--out", str(out)])]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def test_list_and_help_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "toy" in capsys.readouterr().out
    assert main(["toy", "--help"]) == 0
    helped = capsys.readouterr().out
    assert "--hosts" in helped
    assert "[2,4]" in helped
    assert "(fifo, stride)" in helped

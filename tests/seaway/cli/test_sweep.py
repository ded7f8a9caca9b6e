"""`python -m seaway sweep program.py`: a program under policies, options and seeds; ended and resumed, in processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from seaway.cli import main

PROGRAM = """
import time
from pathlib import Path

import seaway as sw
from seaway.workload import Job

seen = []

def measure(seed, load=1):
    seen.append(seed)
    if seed == 13:
        raise KeyError(seed)
    jobs = [Job(at=f"{at}s", devices=4 + 4 * (at % 2), step="1s", steps=(1 + seed + at) * load) for at in range(4)]
    row = sw.workload.Jobs(jobs).play().summary().iloc[0]
    if seed == 3 and Path(__file__).with_name("slow").exists():
        print("READY", flush=True)
        time.sleep(600)
    return {"jct": row["jct_mean_s"], "late": row["late"], "seen": len(seen)}
"""
WHERE = ("--cluster", "B", "--hosts", "1", "--profile", "ideal")
TWO = ("--policy", "in_turn,first_fit")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.py"
    path.write_text(PROGRAM)
    return path


def sweep(program: Path, *options: str) -> int:
    return main(["sweep", str(program), *WHERE, "--jobs", "1", *options])


def test_each_combination_is_measured_and_means_and_differences_are_printed(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert sweep(program, *TWO, "--set", "load=1,2", "--seeds", "3", "--out", str(out), "--show", "jct") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "jct"
    assert said[1].split() == ["load", "policy", "seeds", "mean", "minus", "in_turn"]
    assert [line.split()[:3] for line in said[2:6]] == [
        ["1", "in_turn", "3"], ["1", "first_fit", "3"], ["2", "in_turn", "3"], ["2", "first_fit", "3"]
    ]  # fmt: skip
    table, summary = pd.read_csv(out / "table.csv"), pd.read_csv(out / "summary.csv")
    assert list(table.columns) == ["load", "policy", "seed", "jct", "late", "seen"]
    assert len(table) == 12
    assert table["seen"].tolist() == [1] * 12, "each point has a program of its own"
    assert summary["number"].unique().tolist() == ["jct", "late", "seen"]


def test_the_table_is_the_same_however_many_processes_there_are(program: Path, tmp_path: Path) -> None:
    options = (*TWO, "--set", "load=1,2", "--seeds", "7,3")
    tables = []
    for jobs in ("1", "2"):
        assert sweep(program, *options, "--jobs", jobs, "--out", str(tmp_path / jobs)) == 0
        tables.append([(tmp_path / jobs / name).read_bytes() for name in ("table.csv", "summary.csv")])
    assert tables[0] == tables[1]


def test_a_sweep_that_was_killed_goes_on_where_it_was(program: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert sweep(program, *TWO, "--seeds", "5", "--out", str(whole)) == 0
    begun(program, signal.SIGKILL, *TWO, "--jobs", "1", "--out", str(killed))
    kept = killed / "points.jsonl"
    done = kept.read_bytes()
    assert [json.loads(line)["point"]["seed"] for line in done.splitlines()] == [0, 1, 2]
    kept.write_bytes(done + done[:40])  # a line that was not written to its end
    assert sweep(program, *TWO, "--seeds", "5", "--out", str(killed)) == 0
    for name in ("points.jsonl", "table.csv", "summary.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_its_processes_end_when_it_is_killed(program: Path) -> None:
    """They hold its output, which `begun` reads to the end."""
    assert begun(program, signal.SIGKILL, "--policy", "in_turn", "--jobs", "2") == -signal.SIGKILL


def test_ctrl_c_keeps_what_is_there(program: Path, tmp_path: Path) -> None:
    out = ("--policy", "in_turn", "--out", str(tmp_path / "out"))
    assert begun(program, signal.SIGINT, *out, "--jobs", "1") == 130
    assert pd.read_csv(tmp_path / "out" / "table.csv")["seed"].tolist() == [0, 1, 2]
    assert begun(program, signal.SIGINT, *out, "--jobs", "2") == 130


def begun(program: Path, ended_by: signal.Signals, *options: str) -> int:
    """Starts a sweep, and ends it while it measures seed 3."""
    slow = program.with_name("slow")
    slow.touch()
    command = [sys.executable, "-m", "seaway", "sweep", str(program), *WHERE, "--seeds", "5", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        process.send_signal(ended_by)
        process.stdout.read()
    slow.unlink()
    return process.returncode


def test_finished_points_are_not_measured_again_and_a_sweep_may_grow(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert sweep(program, "--policy", "in_turn", "--seeds", "2", *out) == 0
    before = (tmp_path / "out" / "points.jsonl").read_bytes()
    capsys.readouterr()
    assert sweep(program, *TWO, "--seeds", "3", *out) == 0
    assert "2 of 6 points are there already" in capsys.readouterr().err
    assert (tmp_path / "out" / "points.jsonl").read_bytes().startswith(before)
    assert len(pd.read_csv(tmp_path / "out" / "table.csv")) == 6


POLICY = "import seaway as sw\nclass Mine(sw.policies.FirstFit):\n    pass\n"


def test_rows_of_another_program_cluster_or_policy_are_refused(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(POLICY)
    options = ("--policy", f"in_turn,{mine}:Mine", "--seeds", "1", "--out", str(tmp_path / "out"))
    assert sweep(program, *options) == 0
    assert sweep(program, *options, "--profile", "seaway", "--noise", "compute=0.01") == 1
    assert "rows that were made with another --profile and --noise: choose another --out" in capsys.readouterr().err
    mine.write_text(POLICY + "\n")
    assert sweep(program, *options) == 1
    assert f"with another policy {mine}:Mine: " in capsys.readouterr().err
    mine.write_text(POLICY)
    program.write_text(PROGRAM + "\n")
    assert sweep(program, *options) == 1
    assert "with another program: " in capsys.readouterr().err
    (tmp_path / "out" / "points.jsonl").write_text('{"point": 3}\n')
    assert sweep(program, *options) == 1
    assert "points.jsonl, line 1 is no row of a sweep" in capsys.readouterr().err


def test_a_point_that_fails_is_reported_and_the_others_are_measured(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(program, "--seeds", "12,13,14", "--policy", "in_turn", "--out", str(tmp_path / "out")) == 1
    said = capsys.readouterr()
    assert "failed: policy=in_turn, seed=13: KeyError: 13, in line 13 of jobs.py" in said.err
    assert pd.read_csv(tmp_path / "out" / "table.csv")["seed"].tolist() == [12, 14]


def test_a_policy_that_was_replaced_is_not_measured(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(POLICY.replace("pass", "def decide(self, cluster):\n        raise ValueError('odd')"))
    assert sweep(program, "--policy", f"{mine}:Mine", "--seeds", "1") == 1
    assert "policy Mine was replaced by fifo: on island" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("5", "measure() returned 5: return a dict of numbers, a job report or a table of one row"),
        ("{'a': 'b'}", "measure() returned a='b', which is no number"),
        ("{'load': 1}", "measure() returned 'load', which is an option"),
    ],
)
def test_what_is_no_row_of_numbers_is_refused(
    program: Path, returned: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(f"def measure(seed, load): return {returned}")
    assert sweep(program, "--seeds", "1", "--set", "load=1") == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("returned", ["sw.workload.Jobs([sw.workload.Job(at=0, step='1s')]).play()",
                                      "__import__('pandas').DataFrame([{'count': 1, 'name': 'x'}])",
                                      "{'count': __import__('numpy').int64(1)}"])  # fmt: skip
def test_a_report_and_a_table_of_one_row_are_numbers(
    program: Path, returned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_text(f"import seaway as sw\ndef measure(seed): return {returned}")
    assert sweep(program, "--seeds", "1", "--policy", "in_turn", "--show", "count") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["in_turn", "1", "1"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--seeds", "0"], "--seeds 0: how many, at least 1"),
        (["--seeds", "3,3"], "--seeds 3,3: values that differ"),
        (["--set", "load"], "--set load: write NAME=VALUE"),
        (["--set", "lod=1"], "got an unexpected keyword argument 'lod'"),
        (["--set", "seed=1"], "--set seed=1: that is --seeds"),
        (["--policy", "in_turn,in_trn"], "did you mean 'in_turn'?"),
        (["--plot", "x.png"], "by the numbers of the first --set"),
        (["--plot", "x.txt", "--set", "load=1"], "a file such as means.png"),
        (["--show", "jtc", "--seeds", "1", "--policy", "in_turn"], "--show jtc: measure() returned jct, late, seen"),
        (["--dask", "head:8786"], "--dask needs Dask: pip install 'seaway[dask]'"),
    ],
)
def test_a_mistake_gets_one_line(
    program: Path, options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(program, *options) == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_program_without_measure_is_told_what_to_write(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, why in (("", "jobs.py defines no `measure`"), ("1 / 0", "jobs.py raises ZeroDivisionError")):
        program.write_text(text)
        assert sweep(program) == 1
        assert why in capsys.readouterr().err


def test_options_of_policies_keep_their_commas_and_means_are_plotted(program: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "means.png"
    policies = "stride:lead=2,priority:age=10ms,preempt=0,fifo"
    program.write_text("def measure(seed, load): return {'x': seed * load}")
    options = ("--set", "load=1,2", "--seeds", "2", "--out", str(out), "--plot", str(file))
    assert sweep(program, "--policy", policies, *options) == 0
    found = pd.read_csv(out / "table.csv")["policy"].unique().tolist()
    assert found == ["stride:lead=2", "priority:age=10ms,preempt=0", "fifo"]
    assert file.read_bytes().startswith(b"\x89PNG")

"""A sweep gives the same table however its points are distributed. Finished rows are kept when a point fails or the
user stops it."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from experiments.framework import catalogue, sweeping
from experiments.framework.sweeping import gather, processes

from .measures import toy

POINTS = [{"experiment": "toy", "hosts": hosts, "seed": 0} for hosts in (12, 13, 14, 15)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "experiments.toy", toy())
    monkeypatch.setitem(catalogue.EXPERIMENTS, "toy", "doubles hosts")


def test_a_point_that_fails_affects_no_other_point() -> None:
    found = gather(POINTS, jobs=1)
    assert {at: row["doubled"] for at, row in found.rows.items()} == {0: 24, 2: 28, 3: 30}
    assert found.failed == {1: "ValueError: thirteen hosts fell over"}
    assert len(found.rows) < found.total


def test_any_standard_executor_gives_the_same_rows() -> None:
    with ThreadPoolExecutor(3) as threads:
        assert gather(POINTS, threads) == gather(POINTS, jobs=1)


class StoppedAfter:
    """An executor during which Ctrl-C is pressed when so many points are done."""

    def __init__(self, done: int) -> None:
        self.left = done
        self.waiting: list[Future[Any]] = []

    def submit(self, call: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.left:
            self.left -= 1
            future.set_result(call(*args))
        elif len(self.waiting) == 2:
            raise KeyboardInterrupt
        else:
            self.waiting.append(future)
        return future


def test_points_that_have_not_begun_are_cancelled_in_the_executor() -> None:
    executor: Any = StoppedAfter(1)
    found = gather(POINTS, executor)
    assert found.stopped
    assert all(future.cancelled() for future in executor.waiting)


def test_ctrl_c_keeps_the_finished_rows_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(point: dict[str, Any]) -> dict[str, Any]:
        if point["hosts"] == 14:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(sys.modules["experiments.toy"], "measure", measure)
    found = gather(POINTS, jobs=1)
    assert found.stopped
    assert sorted(found.rows) == [0, 1]
    assert "stopped: 2 of 4 points are kept" in capsys.readouterr().err


def test_processes_ignore_ctrl_c_and_end_with_the_sweep_that_it_stops() -> None:
    before = multiprocessing.active_children()
    with contextlib.suppress(KeyboardInterrupt), processes(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
        asleep = pool.submit(time.sleep, 600)
        while not asleep.running():  # until then it would be taken back
            time.sleep(0.01)
        raise KeyboardInterrupt
    end = time.monotonic() + 20
    while multiprocessing.active_children() != before:  # the pool's own thread waits for them, too
        assert time.monotonic() < end, "a process goes on"
        time.sleep(0.01)


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


class Terminal(StringIO):
    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.is_one = is_one

    def isatty(self) -> bool:
        return self.is_one


@pytest.mark.parametrize("is_one", [True, False])
def test_progress_is_drawn_only_on_a_terminal(is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error = Terminal(is_one)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(sweeping, "QUIET", 0.0)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    gather(POINTS, jobs=1, title="doubles")
    assert ("doubles: " in error.getvalue()) == is_one
    assert bool(error.getvalue()) == is_one

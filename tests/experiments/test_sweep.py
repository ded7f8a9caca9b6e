"""A sweep gives the same table however its points are distributed. Finished rows are kept when a point fails or the
user stops it."""

import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from experiments.framework import PointFailed, sweep, sweeping
from experiments.framework.sweeping import gather

from .measures import fails_at_two, slow_first, square

POINTS = [{"x": x} for x in range(6)]
ROOT = Path(__file__).parents[2]


def test_there_is_one_row_for_each_point_in_the_order_of_points() -> None:
    frame = sweep(POINTS, measure=square, jobs=1)
    assert list(frame.columns) == ["x", "square"]
    assert list(frame["square"]) == [0, 1, 4, 9, 16, 25]


def test_several_processes_give_the_same_table() -> None:
    """The first point is the last to be done, and still the first row."""
    alone = sweep(POINTS, measure=slow_first, jobs=1)
    spread = sweep(POINTS, measure=slow_first, jobs=2)
    assert spread.equals(alone)


def test_any_standard_executor_works() -> None:
    with ThreadPoolExecutor(3) as threads:
        assert sweep(POINTS, threads, measure=slow_first).equals(sweep(POINTS, measure=square, jobs=1))


def test_a_dask_cluster_works() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="inproc"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        frame = sweep(POINTS, executor=client.get_executor(), measure=square)
    assert frame.equals(sweep(POINTS, measure=square, jobs=1))


def test_a_point_that_fails_affects_no_other_point() -> None:
    found = gather(POINTS, measure=fails_at_two, jobs=1)
    assert sorted(found.rows) == [0, 1, 3, 4, 5]
    assert found.failed == {2: "ValueError: two is too many"}
    assert not found.complete


def test_a_failure_names_its_point_and_carries_the_other_rows() -> None:
    with pytest.raises(
        PointFailed, match=r"1 of 6 points failed; the first, \{'x': 2\}: ValueError: two"
    ) as failed:
        sweep(POINTS, measure=fails_at_two, jobs=1)
    assert list(failed.value.frame["x"]) == [0, 1, 3, 4, 5]


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
    executor: Any = StoppedAfter(2)
    found = gather(POINTS, executor, measure=square)
    assert found.stopped
    assert all(future.cancelled() for future in executor.waiting)


def test_ctrl_c_keeps_the_finished_rows_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(point: dict[str, Any]) -> dict[str, Any]:
        if point["x"] == 3:
            raise KeyboardInterrupt
        return square(point)

    found = gather(POINTS, measure=measure, jobs=1)
    assert found.stopped
    assert sorted(found.rows) == [0, 1, 2]
    assert "stopped: 3 of 6 points are kept" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="signals to a group of processes")
def test_ctrl_c_also_ends_the_processes(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(
        textwrap.dedent("""
            import sys, time
            from experiments.framework.sweeping import gather
            def measure(point):
                if point["x"]:
                    print("begun", flush=True)
                    time.sleep(600)
                return {}
            if __name__ == "__main__":
                import forever
                found = gather([{"x": 0}, {"x": 1}], measure=forever.measure, jobs=2)
                print("kept", sorted(found.rows), found.stopped, flush=True)
        """)
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    child = subprocess.Popen(
        [sys.executable, "forever.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does it
    said, errors = child.communicate(timeout=20)
    assert said in ("kept [0] True\n", "kept [] True\n")  # the first point's row may be on its way
    assert errors.startswith("stopped: ")
    assert errors.endswith(" of 2 points are kept\n")


# --- programs without a file, and files without a main guard ---------------------------------------------------


def run_script(words: list[str], text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words], input=text, cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip


FIGURE = """
from experiments.framework import run
result = run("fig5", system="jax", mode="opbyop", hosts=[2, 8], jobs=2, sensitive=False)
print(list(result.frame["hosts"]), result.failed)
"""


def test_an_experiment_runs_from_standard_input(tmp_path: Path) -> None:
    done = run_script(["-"], FIGURE, tmp_path)
    assert done.stdout == "[2, 8] []\n", done.stderr


@pytest.mark.full
def test_an_experiment_runs_from_a_script_without_a_guard(tmp_path: Path) -> None:
    """Otherwise each process would run the script again: one line is printed, by one process."""
    (tmp_path / "mine.py").write_text(FIGURE)
    done = run_script(["mine.py"], "", tmp_path)
    assert done.stdout == "[2, 8] []\n", done.stderr


OWN = """
from experiments.framework import sweep
def measure(point):
    return {"square": point["x"] ** 2}
print(list(sweep([{"x": 1}, {"x": 2}], measure=measure, jobs=2)["square"]))
"""


def test_a_measure_from_standard_input_runs_in_its_own_process_and_says_so(tmp_path: Path) -> None:
    done = run_script(["-"], OWN, tmp_path)
    assert done.stdout == "[1, 4]\n", done.stderr
    assert done.stderr.startswith(
        "`measure` is defined in a notebook or on standard input, so all points run in"
    )
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.full
def test_a_measure_of_a_script_without_a_guard_fails_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = run_script(["mine.py"], "", tmp_path)
    assert done.returncode == 1
    assert 'begin its last part with `if __name__ == "__main__":`' in done.stderr


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
    gather(POINTS, measure=square, jobs=1, title="squares")
    assert ("squares: " in error.getvalue()) == is_one
    assert bool(error.getvalue()) == is_one

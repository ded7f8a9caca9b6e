"""A sweep gives the same table however its points are distributed. Finished rows are kept when a point fails or the
user stops it."""

import contextlib
import multiprocessing
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest

from seaway.tools.sweeping import Point, Row, gather, gathering, processes

POINTS = [{"hosts": hosts} for hosts in (12, 13, 14, 15)]


class TwoArguments(Exception):
    """Cannot be sent: it is made again from one argument."""

    def __init__(self, what: str, hosts: int) -> None:
        super().__init__(f"{what} of {hosts} hosts")


def doubled(point: Point) -> Row:
    if point["hosts"] == 13:
        raise ValueError("thirteen hosts fell over")
    if point["hosts"] == 16:
        raise TwoArguments("fall", 16)
    if point["hosts"] == 17:
        sys.exit("seventeen")
    return {"doubled": 2 * point["hosts"]}


def test_a_point_that_fails_affects_no_other_point() -> None:
    found = gather(POINTS, doubled, jobs=1)
    assert {at: row["doubled"] for at, row in found.rows.items()} == {0: 24, 2: 28, 3: 30}
    assert found.failed == {1: "ValueError: thirteen hosts fell over"}
    assert len(found.rows) < found.total


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_sent_or_leaves_is_a_failure_like_others(jobs: int) -> None:
    found = gather([{"hosts": 16}, {"hosts": 17}, {"hosts": 18}], doubled, jobs=jobs)
    assert found.failed == {0: "TwoArguments: fall of 16 hosts", 1: "SystemExit: seventeen"}
    assert found.rows == {2: {"doubled": 36}}


def test_each_row_is_kept_as_soon_as_it_is_there() -> None:
    kept: dict[int, Row] = {}
    found = gather(POINTS, doubled, jobs=2, keep=kept.__setitem__)
    assert kept == found.rows


def test_any_standard_executor_gives_the_same_rows() -> None:
    with ThreadPoolExecutor(3) as threads:
        assert gather(POINTS, doubled, threads) == gather(POINTS, doubled, jobs=1)


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
    found = gather(POINTS, doubled, executor)
    assert found.stopped
    assert all(future.cancelled() for future in executor.waiting)


def test_ctrl_c_keeps_the_finished_rows_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(point: Point) -> Row:
        if point["hosts"] == 14:
            raise KeyboardInterrupt
        return {}

    found = gather(POINTS, measure, jobs=1)
    assert found.stopped
    assert sorted(found.rows) == [0, 1]
    assert "stopped: 2 of 4 points are kept" in capsys.readouterr().err


def test_processes_ignore_ctrl_c_and_end_with_the_sweep_that_it_stops() -> None:
    before = multiprocessing.active_children()
    with contextlib.suppress(KeyboardInterrupt), processes(1) as pool, gathering._unseen_main():
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
        asleep = pool.submit(time.sleep, 600)
        while not asleep.running():  # until then it would be taken back
            time.sleep(0.01)
        raise KeyboardInterrupt
    end = time.monotonic() + 20
    while multiprocessing.active_children() != before:  # the pool's own thread waits for them, too
        assert time.monotonic() < end, "a process goes on"
        time.sleep(0.01)


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
    monkeypatch.setattr(gathering, "QUIET", 0.0)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    gather(POINTS, doubled, jobs=1, title="doubles")
    assert ("doubles: " in error.getvalue()) == is_one
    assert bool(error.getvalue()) == is_one

"""Measures many configurations in parallel: `sweep(points)` gives a tidy frame, one row a configuration.

    frame = sweep(points("fig5", hosts=[2, 8, 32]))                        # processes of this machine
    frame = sweep(points("fig5"), executor=dask_client.get_executor())     # a cluster's
    frame = sweep([{"x": 1}, {"x": 2}], measure=mine)                      # your own function of a point

Rows are in the order of the points, however the work is distributed, so the same points give the same bytes. After
Ctrl-C, finished rows are kept, and a message says so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from . import catalogue
from .options import Point
from .tables import tidy

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Measure = Callable[[Point], Row]
QUIET = 2.0  # seconds before a progress bar is shown


class PointFailed(Exception):
    """A configuration could not be measured. `frame` has the others."""

    frame: pd.DataFrame


@dataclass
class Gathered:
    """The results of a sweep. `rows` and `failed` are by the point's index."""

    total: int
    rows: dict[int, Row] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    stopped: bool = False

    def part(self, first: int, end: int) -> Gathered:
        """The results of points `first` to `end` (exclusive), numbered from 0."""
        inside = range(first, end)
        return Gathered(
            end - first, {at - first: self.rows[at] for at in inside if at in self.rows},
            {at - first: self.failed[at] for at in inside if at in self.failed}, self.stopped,
        )  # fmt: skip

    @property
    def complete(self) -> bool:
        return len(self.rows) == self.total


def sweep(
    points: Iterable[Point],
    executor: Executor | None = None,
    *,
    measure: Measure | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure all points. Raises PointFailed if one failed.

    `executor`: like those of `concurrent.futures`; None: one process a CPU core, or `jobs` of them (1: this process).
    `measure`: a function of a point; None if the points name their experiment.
    """
    given = list(points)
    found = gather(given, executor, measure=measure, jobs=jobs, title="sweep" if progress else "")
    frame = tidy([found.rows[at] for at in sorted(found.rows)])
    if found.failed:
        at, why = min(found.failed.items())
        error = PointFailed(
            f"{len(found.failed)} of {found.total} points failed; the first, {given[at]}: {why}"
        )
        error.frame = frame
        raise error
    return frame


def gather(
    points: Sequence[Point],
    executor: Executor | None = None,
    *,
    measure: Measure | None = None,
    jobs: int | None = None,
    title: str = "",
) -> Gathered:
    """Like `sweep`, but returns failures too. `title`: the progress bar's; "" for no bar."""
    found = Gathered(len(points))
    jobs = min(len(points), jobs or cores())
    here = executor is None and (jobs <= 1 or _only_here(measure))
    with tqdm(
        total=len(points), desc=title, delay=QUIET, disable=not (title and _seen()), unit="point"
    ) as bar:
        try:
            if here:
                _one_by_one(points, measure, found, bar)
            elif executor is not None:
                _spread(points, measure, executor, found, bar)
            else:
                with processes(jobs) as pool:
                    _spread(points, measure, pool, found, bar)
        except KeyboardInterrupt:
            found.stopped = True
    if found.stopped:
        print(f"stopped: {len(found.rows)} of {found.total} points are kept", file=sys.stderr)
    return found


def measured(point: Point, measure: Measure | None) -> Row:
    """Measure one point, in whichever process the executor chose. Returns the point and its results as one row."""
    if measure is None:
        measure = catalogue.load(point["experiment"]).measure
    return {**point, **measure({name: value for name, value in point.items() if name != "experiment"})}


def _one_by_one(points: Sequence[Point], measure: Measure | None, found: Gathered, bar: Any) -> None:
    for at, point in enumerate(points):
        try:
            found.rows[at] = measured(point, measure)
        except Exception as error:
            found.failed[at] = f"{type(error).__name__}: {error}"
        bar.update()


def _spread(
    points: Sequence[Point], measure: Measure | None, executor: Executor, found: Gathered, bar: Any
) -> None:
    """Measure points with an executor. `as_completed` is not used, since it does not take Dask's futures."""
    done: SimpleQueue[tuple[int, Future[Row]]] = SimpleQueue()
    futures: list[Future[Row]] = []
    try:
        with _unseen_main() if measure is None else nullcontext():
            for at, point in enumerate(points):
                with _sheltered():  # this may start a process
                    future = executor.submit(measured, point, measure)
                futures.append(future)
                future.add_done_callback(lambda future, at=at: done.put((at, future)))  # type: ignore[misc]
        for _ in points:
            at, future = done.get()
            error = future.exception()
            if error is None:
                found.rows[at] = future.result()
            else:
                found.failed[at] = f"{type(error).__name__}: {error}{_unguarded(error)}"
            bar.update()
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def _seen() -> bool:
    """Whether a progress bar can be redrawn in place. In a log, each of its states would be a line."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _only_here(measure: Measure | None) -> bool:
    """Whether `measure` can only run in this process: if it is from a notebook or standard input, it has no file that
    other processes could import."""
    if measure is None or getattr(measure, "__module__", "") != "__main__":
        return False
    if os.path.exists(getattr(sys.modules["__main__"], "__file__", "")):  # of standard input it is "<stdin>"
        return False
    print("`measure` is defined in a notebook or on standard input, so all points run in this process, one by one; "
          "put it into a module to use several", file=sys.stderr)  # fmt: skip
    return True


@contextmanager
def _unseen_main() -> Iterator[None]:
    """Keep processes spawned in this block from running the user's main file, which they do not need.

    It may be standard input, which can be read only once, or a script that would start the same sweep in each process.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _unguarded(error: BaseException) -> str:
    if not isinstance(error, BrokenProcessPool):
        return ""
    return (
        " A script that calls `sweep` with its own `measure` is run again by each process: begin its last part with "
        '`if __name__ == "__main__":`, or take jobs=1'
    )


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _sheltered() -> Iterator[None]:
    """Start processes in this block with Ctrl-C blocked. For this process it is only delayed until the block ends."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of spawned processes. Unlike forked ones they are safe beside threads, and the same on every platform.

    They ignore Ctrl-C; this process then ends them.
    """
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_deaf)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in before:
                child.terminate()
        raise
    pool.shutdown()


def _deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""Measures many configurations in parallel: `gather(points)` gives a row for each.

Rows are in the order of the points, however the work is distributed, so the same points give the same bytes. After
Ctrl-C, finished rows are kept, and a message says so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tqdm import tqdm

from . import catalogue
from .options import Point

Row = dict[str, Any]
QUIET = 2.0  # seconds before a progress bar is shown


@dataclass
class Gathered:
    """The results of a sweep. `rows` and `failed` are by the point's index."""

    total: int
    rows: dict[int, Row] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    stopped: bool = False


def gather(
    points: Sequence[Point], executor: Executor | None = None, *, jobs: int | None = None, title: str = ""
) -> Gathered:
    """Measure all points, each as the experiment does that it names. `executor`: one of `concurrent.futures`; None: one
    process a CPU core, or `jobs` of them (1: this process). `title`: the progress bar's; "" for no bar."""
    found = Gathered(len(points))
    jobs = min(len(points), jobs or cores())
    with tqdm(total=len(points), desc=title, delay=QUIET, disable=not (title and _seen()), unit="point") as bar:
        try:
            if executor is not None:
                _spread(points, executor, found, bar)
            elif jobs > 1:
                with processes(jobs) as pool:
                    _spread(points, pool, found, bar)
            else:
                _one_by_one(points, found, bar)
        except KeyboardInterrupt:
            found.stopped = True
    if found.stopped:
        print(f"stopped: {len(found.rows)} of {found.total} points are kept", file=sys.stderr)
    return found


def measured(point: Point) -> Row:
    """Measure one point, in whichever process the executor chose. Returns the point and its results as one row."""
    experiment = catalogue.load(point["experiment"])
    return {**point, **experiment.measure({name: point[name] for name in point if name != "experiment"})}


def _one_by_one(points: Sequence[Point], found: Gathered, bar: Any) -> None:
    for at, point in enumerate(points):
        try:
            found.rows[at] = measured(point)
        except Exception as error:
            found.failed[at] = f"{type(error).__name__}: {error}"
        bar.update()


def _spread(points: Sequence[Point], executor: Executor, found: Gathered, bar: Any) -> None:
    futures: dict[Future[Row], int] = {}
    try:
        with _unseen_main():
            for at, point in enumerate(points):
                with _sheltered():  # this may start a process
                    futures[executor.submit(measured, point)] = at
        for future in as_completed(futures):
            at, error = futures[future], future.exception()
            if error is None:
                found.rows[at] = future.result()
            else:
                found.failed[at] = f"{type(error).__name__}: {error}"
            bar.update()
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def _seen() -> bool:
    """Whether a progress bar can be redrawn in place. In a log, each of its states would be a line."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


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

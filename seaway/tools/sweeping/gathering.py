"""Measures many points in parallel: `gather(points, measure)` gives a row for each.

Rows are by the order of the points, however the work is distributed, so the same points give the same bytes. After
Ctrl-C, finished rows are kept, and a message says so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tqdm import tqdm

Point = dict[str, Any]  # one configuration: an option's name, and one value of it
Row = dict[str, Any]
Measure = Callable[[Point], Row]  # of the top level of a module, for it is sent to other processes
Outcome = tuple[Row | None, str]  # its row, or why it has none
QUIET = 2.0  # seconds before a progress bar is shown


@dataclass
class Gathered:
    """The results of a sweep. `rows` and `failed` are by the point's index."""

    total: int
    rows: dict[int, Row] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    stopped: bool = False


def gather(
    points: Sequence[Point], measure: Measure, executor: Executor | None = None, *, jobs: int | None = None,
    title: str = "", keep: Callable[[int, Row], None] = lambda at, row: None,
) -> Gathered:  # fmt: skip
    """Measure all points. `executor`: one of `concurrent.futures`; None: one process a CPU core, or `jobs` of them (1:
    this process). `title`: the progress bar's; "" for no bar. `keep` is handed each row as soon as it is there."""
    found = Gathered(len(points))
    jobs = min(len(points), jobs or cores())
    with tqdm(total=len(points), desc=title, delay=QUIET, disable=not (title and _seen()), unit="point") as bar:

        def ended(at: int, outcome: Outcome) -> None:
            row, why = outcome
            if row is None:
                found.failed[at] = why
            else:
                found.rows[at] = row
                keep(at, row)
            bar.update()

        try:
            if executor is not None:
                _spread(points, measure, executor, ended)
            elif jobs > 1:
                with processes(jobs) as pool:
                    _spread(points, measure, pool, ended)
            else:
                for at, point in enumerate(points):
                    ended(at, _outcome(measure, point))
        except KeyboardInterrupt:
            found.stopped = True
    if found.stopped:
        print(f"stopped: {len(found.rows)} of {found.total} points are kept", file=sys.stderr)
    return found


def _outcome(measure: Measure, point: Point) -> Outcome:
    """Measure one point, in whichever process the executor chose. What it raises becomes a text there: not every
    exception can be sent."""
    try:
        return measure(point), ""
    except (Exception, SystemExit) as error:
        return None, _said(error)


def _said(error: BaseException) -> str:
    return ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


def _spread(
    points: Sequence[Point], measure: Measure, executor: Executor, ended: Callable[[int, Outcome], None]
) -> None:
    futures: dict[Future[Outcome], int] = {}
    try:
        with _unseen_main():
            for at, point in enumerate(points):
                with _sheltered():  # this may start a process
                    futures[executor.submit(_outcome, measure, point)] = at
        for future in as_completed(futures):
            error = future.exception()  # its process has ended, or its row cannot be sent
            ended(futures[future], (None, _said(error)) if error else future.result())
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

    They ignore Ctrl-C; this process then ends them. If it is killed, they end by themselves.
    """
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in before:
                child.terminate()
        raise
    pool.shutdown()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

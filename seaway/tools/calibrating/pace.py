"""Tracks the machine's speed during measurements: a process runs a small fixed piece of Python on each core in turn.

    with paced(folder) as pace:            starts the process, which writes the CPU time of each run
        ...
        pace.between(begun, ended)         mean nanoseconds of the reference between these moments

A core that shares its hardware with another tenant's thread is nearly half as fast, for a second or for minutes, and no
counter shows it. `measuring` keeps the speed that its costs hold for; `experiments.bench` predicts for a run's speed.
"""

import os
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from backend.admin import Children, end_with_parent
from backend.process_title import show_as

from .fitting import FittedCost, half_range
from .this_machine import counted

MODULE = "seaway.tools.calibrating.pace"
ROUNDS = 600  # of the reference: 0.1 to 0.2 milliseconds
EVERY = 0.01  # seconds between two runs, which take one or two percent of a core
WINDOW = 1_000_000_000  # nanoseconds: the spread is that of means over such windows
FEW = 5  # runs needed to tell a speed
PATIENCE = 20.0  # seconds to wait for the first run


class PaceBeat(NamedTuple):
    """One run of the reference. at: monotonic nanoseconds. took: nanoseconds of CPU."""

    at: int
    core: int
    took: int


class Pace:
    """Reads the runs that the process writes to `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beats: list[PaceBeat] = []
        self._read = 0

    def between(self, begun: int, ended: int) -> float:
        """The mean time of the reference between two monotonic times; if they are too close, around them."""
        beats = self._until(ended)
        first, last = bisect_left(beats, begun, key=when), bisect_right(beats, ended, key=when)
        if last - first < FEW:
            first = max(0, min((first + last - FEW) // 2, len(beats) - FEW))
            last = first + FEW
        return mean(beats[first:last])

    def all(self) -> FittedCost:
        """The mean over all time until now, with the spread of its seconds."""
        beats = self._until(time.monotonic_ns())
        windows: dict[int, list[PaceBeat]] = {}
        for beat in beats:
            windows.setdefault(beat.at // WINDOW, []).append(beat)
        value = mean(beats)
        seconds = [mean(found) for found in windows.values() if len(found) >= FEW]
        return FittedCost(value, half_range(seconds) / value if seconds else 0.0)

    def _until(self, moment: int) -> list[PaceBeat]:
        """All runs, once one is as late as `moment`."""
        patience = time.monotonic() + PATIENCE
        while not self._beats or self._beats[-1].at < moment:
            if not self._more():
                if time.monotonic() > patience:
                    raise RuntimeError(f"the process that measures the machine's speed writes nothing: {self.path}")
                time.sleep(EVERY)
        return self._beats

    def _more(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._beats += [PaceBeat(*map(int, line.split())) for line in whole.splitlines()]
        return bool(whole)


def when(beat: PaceBeat) -> int:
    return beat.at


def mean(beats: Sequence[PaceBeat]) -> float:
    """The time of the reference at the mean speed over these runs (a harmonic mean). All cores count equally."""
    by_core: dict[int, list[float]] = {}
    for beat in beats:
        by_core.setdefault(beat.core, []).append(1 / beat.took)
    speeds = [sum(each) / len(each) for each in by_core.values()]
    return len(speeds) / sum(speeds)


@contextmanager
def paced(folder: Path) -> Iterator[Pace]:
    """Run the process that writes to this folder, until the block ends."""
    children, path = Children(folder), folder / "pace"
    try:
        with path.open("wb") as file:
            children.start("pace", MODULE, [], stdout=file)
        pace = Pace(path)
        pace.between(0, 0)  # wait until it has begun
        yield pace
    finally:
        children.end_all(0.1)


def beat(core: int) -> PaceBeat:
    os.sched_setaffinity(0, {core})
    begun = time.thread_time_ns()
    counted(ROUNDS)
    took = time.thread_time_ns() - begun
    return PaceBeat(time.monotonic_ns(), core, max(1, took))


def main() -> None:
    end_with_parent()
    show_as("calibrate: pace")
    cores = sorted(os.sched_getaffinity(0))
    for core in cores:
        beat(core)  # the first time of all is slower
    turn = 0
    while True:
        sys.stdout.write("{} {} {}\n".format(*beat(cores[turn % len(cores)])))
        sys.stdout.flush()
        turn += 1
        time.sleep(EVERY)


if __name__ == "__main__":
    main()

"""How fast the machine is, all the while: a small fixed piece of Python, run on each core in turn, many times a second.

    with paced(folder) as pace:            a process of its own, that writes what each took
        ...
        pace.between(begun, ended)         nanoseconds of the reference meanwhile, as the machine's mean speed has it

A core that shares its hardware with a stranger's thread is nearly half as fast, for a second or for minutes, and no
counter says so. What is measured meanwhile is then measured on another machine; how much of another, this tells.
Neighbours: `measuring`, which puts all samples at one speed; `experiments.bench`, which says at which speed a run was.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

from backend.admin import Children, end_with_parent

from .fitting import Cost, half_range
from .machine import counted

MODULE = "seaway.tools.calibrating.pace"
ROUNDS = 600  # of the reference: a tenth of a millisecond or two
EVERY = 0.01  # seconds from one to the next: a hundredth of a core's time, or two
WINDOW = 1_000_000_000  # nanoseconds: speeds over such are compared to say how much the machine varied
FEW = 5  # of a core, or the time is too short to tell
PATIENCE = 20.0  # seconds for the first


class Beat(NamedTuple):
    """at: monotonic nanoseconds. took: nanoseconds of CPU."""

    at: int
    core: int
    took: int


class Pace:
    """`path`: where beats are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beats: list[Beat] = []
        self._read = 0

    def between(self, begun: int, ended: int) -> float:
        """Monotonic nanoseconds both. Where that is too short to tell: of the moments around it."""
        beats = self._until(ended)
        first, last = bisect_left(beats, begun, key=when), bisect_right(beats, ended, key=when)
        if last - first < FEW:
            first = max(0, min((first + last - FEW) // 2, len(beats) - FEW))
            last = first + FEW
        return mean(beats[first:last])

    def all(self) -> Cost:
        """Over all the time until now; its spread is that of its seconds."""
        beats = self._until(time.monotonic_ns())
        windows: dict[int, list[Beat]] = {}
        for beat in beats:
            windows.setdefault(beat.at // WINDOW, []).append(beat)
        value = mean(beats)
        seconds = [mean(found) for found in windows.values() if len(found) >= FEW]
        return Cost(value, half_range(seconds) / value if seconds else 0.0)

    def _until(self, moment: int) -> list[Beat]:
        """All beats, once they go as far as that."""
        patience = time.monotonic() + PATIENCE
        while not self._beats or self._beats[-1].at < moment:
            if not self._more():
                if time.monotonic() > patience:
                    raise RuntimeError(
                        f"the process that tells the machine's speed says nothing: {self.path}"
                    )
                time.sleep(EVERY)
        return self._beats

    def _more(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._beats += [Beat(*map(int, line.split())) for line in whole.splitlines()]
        return bool(whole)


def when(beat: Beat) -> int:
    return beat.at


def mean(beats: Sequence[Beat]) -> float:
    """At the mean speed: what runs all the while gets done so much as at this. Each core counts alike."""
    by_core: dict[int, list[float]] = {}
    for beat in beats:
        by_core.setdefault(beat.core, []).append(1 / beat.took)
    speeds = [sum(each) / len(each) for each in by_core.values()]
    return len(speeds) / sum(speeds)


class Spent(Protocol):
    """`span`: when; monotonic nanoseconds."""

    @property
    def span(self) -> tuple[int, int]: ...

    def scaled(self, by: float) -> Self: ...


Thing = TypeVar("Thing", bound=Spent)


def steady(things: Sequence[Thing], pace: Pace) -> list[Thing]:
    """As if the machine had had its mean speed all the while."""
    usual = pace.all().value
    return [thing.scaled(usual / pace.between(*thing.span)) for thing in things]


@contextmanager
def paced(folder: Path) -> Iterator[Pace]:
    """Beats are written in there, until it is left."""
    children, path = Children(folder), folder / "pace"
    try:
        with path.open("wb") as file:
            children.start("pace", MODULE, [], stdout=file)
        pace = Pace(path)
        pace.between(0, 0)  # it has begun
        yield pace
    finally:
        children.end_all(0.1)


def beat(core: int) -> Beat:
    os.sched_setaffinity(0, {core})
    begun = time.thread_time_ns()
    counted(ROUNDS)
    took = time.thread_time_ns() - begun
    return Beat(time.monotonic_ns(), core, max(1, took))


def main() -> None:
    end_with_parent()
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

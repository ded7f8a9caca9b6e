"""Children that are started again when they die: the agents of `sw.local`; agents and controller of `seaway up`.

    supervisor.keep(child, start)     `start()` makes the next of its name
    supervisor.look()                 now and then, in one thread: what has died since is started again, and told of

The first time, that is at once. One that dies soon again is started after pauses that grow, so that nothing spins; one
that dies again and again and has never come up in between is given up, and its last words are told.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from .children import Child, Children

SOON = 10.0  # seconds: one that lived for less has died soon
FIRST = 0.5  # seconds before the second start in a row; twice as long each time ...
MOST = 4.0  # ... and no longer than this
VAINLY = 4  # starts in a row that never came up, after which there is no other
UP = re.compile(
    r"^(hosts [\d, ]+|controller) at ", re.MULTILINE
)  # what our programs print when they are there
Start = Callable[[], Child]


def came_up(child: Child) -> bool:
    return UP.search(child.said()) is not None


class Kept:
    """One that is started again: its last process, and how the ones before it fared."""

    def __init__(self, child: Child, start: Start, now: float) -> None:
        self.child, self.start, self.born = child, start, now
        self.deaths = 0  # soon after a start, in a row
        self.vainly = 0  # of these, without coming up, in a row
        self.due: float | None = None  # when it is started again
        self.given_up = False

    def died(self, now: float) -> None:
        """Decides when there is another start, or that there is none."""
        came = came_up(self.child)
        self.deaths = 1 + self.deaths * (not came or now - self.born < SOON)
        self.vainly = 0 if came else self.vainly + 1
        self.given_up = self.vainly >= VAINLY
        self.due = None if self.given_up else now + pause(self.deaths)


def pause(deaths: int) -> float:
    """Seconds before the start behind so many deaths in a row."""
    return 0.0 if deaths <= 1 else min(FIRST * 2 ** min(deaths - 2, 32), MOST)


class Supervisor:
    """`tell`: a line for whoever runs us. It may be looked at and stopped from different threads."""

    def __init__(
        self, children: Children, tell: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._children, self._tell, self._now = children, tell, now
        self._kept: list[Kept] = []
        self._lock = threading.Lock()
        self._over = False

    def keep(self, child: Child, start: Start) -> None:
        self._kept.append(Kept(child, start, self._now()))

    @property
    def all(self) -> list[Child]:
        """The last process of each, in the order in which they are kept."""
        return [each.child for each in self._kept]

    def given_up(self) -> list[Child]:
        return [each.child for each in self._kept if each.given_up]

    def look(self) -> None:
        for each in self._kept:
            with self._lock:
                if not (self._over or each.given_up):
                    self._look_at(each)

    def stop(self) -> None:
        """Nothing is started from now on."""
        with self._lock:
            self._over = True

    def _look_at(self, each: Kept) -> None:
        now = self._now()
        if each.due is None and not each.given_up:
            if each.child.alive:
                return
            each.died(now)
            self._tell(_news(each, now))
        if each.due is not None and each.due <= now:
            self._children.end(each.child)  # nothing of it is to stay here
            try:
                each.child, each.born, each.due = each.start(), now, None
            except OSError as error:  # this machine has no room for a process now
                each.due = now + MOST
                self._tell(
                    f"{each.child.name} cannot be started: {error.strerror}; the next try is in {MOST:g} s"
                )


def _news(each: Kept, now: float) -> str:
    child = each.child
    ended = f"{child.name} (pid {child.pid}) {child.fate()}{_why(child)}"
    if each.due is None:
        return (
            f"{ended}; it did so {VAINLY} times in a row before it had come up, and is given up. Its log, "
            f"{child.log}, ends: {child.tail() or 'it said nothing'}"
        )
    wait = each.due - now
    return f"{ended}; it is started again" + (f" in {wait:g} s" if wait else "")


def _why(child: Child) -> str:
    """The last line that it said, if it ended by itself and not in order."""
    lines = child.tail().splitlines()
    return f" ({lines[-1].strip()})" if lines and (child.process.poll() or 0) > 0 else ""

"""Restarts children that die: the agents of `sw.local`; agents and controller of `seaway up`.

    supervisor.keep(child, start)     `start()` starts the next process of the same name
    supervisor.look()                 regularly, in one thread: restarts dead children, and reports it

The first restart is immediate. A child that soon dies again is restarted after growing pauses, so that nothing spins.
A child that dies again and again without ever coming up is given up, and its last output is reported.
"""

import re
import threading
import time
from collections.abc import Callable

from .children import Child, Children

SOON = 10.0  # seconds: a child that lived for less died soon
FIRST = 0.5  # seconds before the second restart in a row; twice as long each time ...
MOST = 4.0  # ... but no longer than this
VAINLY = 4  # starts in a row that never came up, after which there is no further one
UP = re.compile(r"^(hosts [\d, ]+|controller) at ", re.MULTILINE)  # what our programs print when they are up
Start = Callable[[], Child]


def came_up(child: Child) -> bool:
    return UP.search(child.said()) is not None


class KeptProcess:
    """A child that is restarted: its latest process, and how the earlier ones ended."""

    def __init__(self, child: Child, start: Start, now: float) -> None:
        self.child, self.start, self.born = child, start, now
        self.deaths = 0  # deaths in a row soon after a start
        self.vainly = 0  # deaths in a row without having come up
        self.due: float | None = None  # time of the next start
        self.given_up = False

    def died(self, now: float) -> None:
        """Decides when the child is restarted, or that it is given up."""
        came = came_up(self.child)
        self.deaths = 1 + self.deaths * (not came or now - self.born < SOON)
        self.vainly = 0 if came else self.vainly + 1
        self.given_up = self.vainly >= VAINLY
        self.due = None if self.given_up else now + pause(self.deaths)


def pause(deaths: int) -> float:
    """Seconds before the restart after this many deaths in a row."""
    return 0.0 if deaths <= 1 else min(FIRST * 2 ** min(deaths - 2, 32), MOST)


class Supervisor:
    """Restarts children. `tell` takes lines for the operator. `look` and `stop` may be in different threads."""

    def __init__(
        self, children: Children, tell: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._children, self._tell, self._now = children, tell, now
        self._kept: list[KeptProcess] = []
        self._lock = threading.Lock()
        self._over = False

    def keep(self, child: Child, start: Start) -> None:
        self._kept.append(KeptProcess(child, start, self._now()))

    @property
    def all(self) -> list[Child]:
        """The latest process of each child, in the order of `keep`."""
        return [each.child for each in self._kept]

    def given_up(self) -> list[Child]:
        return [each.child for each in self._kept if each.given_up]

    def look(self) -> None:
        for each in self._kept:
            with self._lock:
                if not (self._over or each.given_up):
                    self._look_at(each)

    def stop(self) -> None:
        """Starts nothing from now on."""
        with self._lock:
            self._over = True

    def _look_at(self, each: KeptProcess) -> None:
        now = self._now()
        if each.due is None and not each.given_up:
            if each.child.alive:
                return
            each.died(now)
            self._tell(_report(each, now))
        if each.due is not None and each.due <= now:
            self._children.end(each.child)  # so that nothing of the old process remains
            try:
                each.child, each.born, each.due = each.start(), now, None
            except OSError as error:  # the machine has no room for a process now
                each.due = now + MOST
                self._tell(f"{each.child.name} cannot be started: {error.strerror}; the next try is in {MOST:g} s")


def _report(each: KeptProcess, now: float) -> str:
    child = each.child
    ended = f"{child.name} (pid {child.pid}) {child.fate()}{_last_line(child)}"
    if each.due is None:
        return (
            f"{ended}; it ended {VAINLY} times in a row before it had come up, and is given up. Its log, "
            f"{child.log}, ends: {child.tail() or '(no output)'}"
        )
    wait = each.due - now
    return f"{ended}; it is started again" + (f" in {wait:g} s" if wait else "")


def _last_line(child: Child) -> str:
    """The last line of its output, if it ended with an error."""
    lines = child.tail().splitlines()
    return f" ({lines[-1].strip()})" if lines and (child.process.poll() or 0) > 0 else ""

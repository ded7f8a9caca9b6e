"""Wakes the thread that has the turn next, on the core of the thread that hands it over.

Threads that take turns run one at a time, and each goes on with the same simulation. The system wakes a thread on an
idle core, where nothing of the simulation is in the caches: with eight clients, that took almost as long as the gangs
themselves. So a thread that hands the turn over, and is about to wait, leaves its core to the next one. Only waking is
bound to that core: the next thread may run anywhere again before it goes on with the user's code, and so may all
threads that this code starts.

Only Linux says which core a thread is on, and lets it choose: elsewhere, the system decides.
Neighbour: `turns`, which has a `TurnSignal` for each thread.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue


def _core_of_this_thread() -> Callable[[], int] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    found: Callable[[], int] | None = getattr(ctypes.PyDLL(None), "sched_getcpu", None)
    return found


CORE = _core_of_this_thread()


class TurnSignal:
    """One thread waits for it (`wait`), and others give it (`give`), each time for one turn."""

    __slots__ = ("_bound", "_cores", "_given", "_lock", "_waits")

    def __init__(self) -> None:
        self._given: SimpleQueue[None] = SimpleQueue()  # in C: half as dear as an Event
        self._lock = threading.Lock()
        self._waits = 0  # the thread that waits, as the system numbers it
        self._cores: set[int] = set()  # on which it may run; none unless it waits
        self._bound = False  # it is to wake on one of these

    def wait(self, seconds: float) -> None:
        """Raises `queue.Empty` if the turn is not given for so long."""
        if CORE is not None and not self._cores:
            self._waits, self._cores = threading.get_native_id(), os.sched_getaffinity(0)
        self._given.get(timeout=seconds)
        with self._lock:
            cores, self._cores = self._cores, set()
            bound, self._bound = self._bound, False
        if bound:
            _choose(0, cores)

    def give(self) -> None:
        """The thread that gives it is about to wait, or to end."""
        if CORE is not None:
            with self._lock:
                core = CORE()
                if len(self._cores) > 1 and core in self._cores:
                    self._bound = True
                    _choose(self._waits, {core})
        self._given.put(None)

    def wake(self) -> None:
        """As `give`, by a thread that goes on itself."""
        self._given.put(None)


def _choose(thread: int, cores: set[int]) -> None:
    try:
        os.sched_setaffinity(thread, cores)
    except OSError:
        pass  # it has just ended, or the process has lost these cores: the system decides

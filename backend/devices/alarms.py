"""Calls functions at a given time, to some tens of microseconds; an asyncio loop waits for whole milliseconds.

One thread serves all users in this process; it ends with the last user.

Neighbour: `timed`, whose devices must take the time that they are told, and not a millisecond more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Alarms:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._users = 0
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._changed:
            self._users += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        """Ends one use; the last one ends the thread."""
        with self._changed:
            self._users -= 1
            if not self._users:
                self._heap.clear()
                self._thread = None
                self._changed.notify()

    def at(self, when: int, call: Callable[[], object]) -> None:
        """Calls `call` at `when`, by time.monotonic_ns(), in the thread of the alarms; it must be short."""
        with self._changed:
            number = next(self._numbers)
            heappush(self._heap, (when, number, call))
            if self._heap[0][1] == number:
                self._changed.notify()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self._thread is me and (wait := self._wait()) != 0:
                    self._changed.wait(wait)
                if self._thread is not me:
                    return
                *_, call = heappop(self._heap)
            call()

    def _wait(self) -> float | None:
        """Seconds until the first call is due; None: there is none."""
        return max(0.0, (self._heap[0][0] - time.monotonic_ns()) / 1e9) if self._heap else None


ALARMS = Alarms()

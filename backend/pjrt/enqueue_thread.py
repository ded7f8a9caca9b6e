"""The thread that enqueues. While it has nothing to do, it also reads the stream from the controller.

    LentReading --read--> the node decides --do--> this thread's own work, without a hand-over --between--> reports

Neighbours: `worker_thread`; `streams.lent_reading`, which says who reads; `pjrt_devices`.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ..streams import LentReading
from .worker_thread import Work, WorkerThread, show_name

BETWEEN = 1_000_000  # nanoseconds of work, after which the thread calls `between`, and reads what has come
EVENTS = select.POLLIN
T = TypeVar("T")


class EnqueueThread(WorkerThread):
    """`between`: called before a pause, and now and then while there is work; returns the seconds after which it wants
    to be called again, or None."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._items: deque[Work | None] = deque()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._asleep = self._over = False
        self._lent: LentReading | None = None
        self._between: Callable[[], float | None] = lambda: None
        self._paused = 0  # when the thread last did what is between its work
        super().__init__(name, failed)

    # --- any thread -----------------------------------------------------------------------------------------------

    def reads(self, lent: LentReading, between: Callable[[], float | None]) -> None:
        """Reads this too, from now on."""
        self._lent, self._between = lent, between
        lent.wake = self.wake

    def wake(self) -> None:
        if self._asleep:
            self._asleep = False
            with suppress(OSError):
                self._rope.send(b".")

    def _put(self, work: Work | None) -> None:
        self._items.append(work)
        self.wake()

    def ask(self, work: Callable[..., T], *arguments: Any) -> T:
        """As of any worker thread, and also in this thread while the node decides here."""
        if threading.get_ident() == self.ident:
            self._work(decides=True)  # what was decided before comes first
            return work(*arguments)
        return super().ask(work, *arguments)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        show_name()
        while True:
            self._work()
            if self._over:
                break
            if self._lent is not None:
                self._lent.rests()
            due = self._safely(self._between)
            if self._lent is not None and self._lent.more:
                self._safely(self._lent.read)
            else:
                self._sleep(due)
        self._bell.close()
        self._rope.close()

    def _work(self, decides: bool = False) -> None:
        """Does all work. `decides`: the node is in the middle of a turn, in this thread."""
        while self._items:
            item = self._items.popleft()
            if item is None:
                self._over = True
                return
            now = time.monotonic_ns()
            if self._lent is not None:
                self._lent.begins(now)
            try:
                item[0](*item[1])
            except BaseException as error:
                self._tell_of(error)
            del item  # so that finished work keeps nothing alive
            if now - self._paused > BETWEEN and not decides:
                self._pause(now)

    def _pause(self, now: int) -> None:
        """Does what has waited while there was work."""
        self._paused = now
        self._safely(self._between)
        lent = self._lent
        if lent is not None and lent.fileno() >= 0:
            self._safely(lent.read)

    def _sleep(self, due: float | None) -> None:
        """Waits for work, for something to read, or until it is time for `between`."""
        waits = select.poll()
        waits.register(self._bell, EVENTS)
        number = self._lent.fileno() if self._lent is not None else -1
        if number >= 0:
            waits.register(number, EVENTS)
        self._asleep = True
        ready = waits.poll(None if due is None else 1e3 * due) if not self._items else []
        self._asleep = False
        for each, _ in ready:
            if each == self._bell.fileno():
                with suppress(OSError):
                    self._bell.recv(64)
        if self._lent is not None and any(each == number for each, _ in ready):
            self._safely(self._lent.read)

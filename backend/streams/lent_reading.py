"""A connection that a working thread reads while it has nothing else to do; otherwise the loop reads it.

    loop --offer--> LentReading --fileno, read--> the thread: what comes is decided, and then done, in one thread
      ^--------- _look: one piece of the thread's work takes longer than LONG: the loop reads again, until it asks

So a message wakes one thread and not two, and a thread that computes for long keeps nobody from reading: heartbeats, or
that its work is to be abandoned. The thread never waits for the node's lock with work on its hands, since who has the
lock may wait for that work. Neighbours: `connection`; `pjrt.worker_thread`, which reads.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .connection import Connection

LONG = 5_000_000  # nanoseconds of one piece of work, beyond which the loop reads
EVERY = 0.005  # seconds between looks while the thread works
QUIET = 20  # looks without work, after which nobody looks until there is work again
PATIENCE = 0.001  # seconds to wait for the node's lock, or until the other one has read


class LentReading:
    """Made in the loop's thread. `lock`: that of the node. `looked`: called in the loop at every look, for what else
    the thread would do."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lock: threading.RLock, looked: Callable[[], Any] = lambda: None
    ) -> None:
        self._loop, self._lock, self._looked = loop, lock, looked
        self._thread = threading.get_ident()  # the loop's
        self.wake: Callable[[], None] = lambda: None  # set by the thread: there is something to read
        self._connection: Connection | None = None
        self._lent = False  # the thread reads; otherwise the loop
        self._reading = threading.Lock()  # held by the thread while it reads
        self._asked = False  # the thread wants to read again
        self._busy = 0  # since when the thread does one piece of work; 0: it reads, or waits
        self._looks = False
        self._quiet = 0

    # --- in the thread --------------------------------------------------------------------------------------------

    def begins(self, now: int) -> None:
        """The thread begins a piece of work."""
        self._busy = now
        self._quiet = 0
        if not self._looks:
            self._looks = True
            self._soon(self._look)

    def rests(self) -> None:
        """The thread has done all its work."""
        self._busy = 0
        if not self._lent and not self._asked and self._connection is not None:
            self._asked = True
            self._soon(self._lend)

    def fileno(self) -> int:
        """What the thread is to wait for; -1: nothing."""
        connection = self._connection
        return connection.fileno() if self._lent and connection is not None else -1

    @property
    def more(self) -> bool:
        """Whether frames were left, so that the thread does first what came before them."""
        connection = self._connection
        return self._lent and connection is not None and connection.resting

    def read(self) -> None:
        """Reads what has come, and has it taken, unless others have the lock: then it is to be called again."""
        with self._reading:
            connection = self._connection
            if connection is None or not self._lent or not self._lock.acquire(timeout=PATIENCE):
                return
            try:
                connection.read()
            finally:
                self._lock.release()

    # --- in any thread --------------------------------------------------------------------------------------------

    def behind(self, act: Callable[[], None]) -> bool:
        """Calls `act` behind what the loop does now, if this is its thread, and returns True; else at once. Whoever is
        woken up in the middle of a turn only competes for Python's lock with what the turn has still to say."""
        if threading.get_ident() != self._thread:
            act()
            return False
        self._loop.call_soon(act)
        return True

    def _soon(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is over, and so is this process
            self._loop.call_soon_threadsafe(act)

    # --- in the loop ----------------------------------------------------------------------------------------------

    def offer(self, connection: Connection) -> None:
        """Lends this connection from now on, instead of the one before."""
        if connection.over.is_set():
            return
        if not self._reading.acquire(blocking=False):
            self._loop.call_later(PATIENCE, self.offer, connection)
            return
        try:
            self._connection, self._lent = connection, False
            connection.let_go = lambda: self._take_back(connection)
        finally:
            self._reading.release()
        self._lend()

    def _lend(self) -> None:
        self._asked = False
        connection = self._connection
        if connection is not None and not self._lent and connection.pause_for_another():
            self._lent = True
            self.wake()

    def _take_back(self, connection: Connection) -> bool:
        """The connection is about to be closed. False: the thread is reading it."""
        if self._connection is not connection:
            return True
        if not self._reading.acquire(blocking=False):
            return False
        self._connection, self._lent = None, False
        self._reading.release()
        return True

    def _look(self) -> None:
        now = time.monotonic_ns()
        if self._busy and now - self._busy > LONG and self._lent and self._reading.acquire(blocking=False):
            self._lent = False
            self._reading.release()
            if self._connection is not None:
                self._connection.go_on()
        self._looked()
        self._quiet += 1
        # first; then the thread that begins now asks for a look, or is seen here
        self._looks = self._quiet <= QUIET
        if self._busy or self._looks:
            self._looks = True
            self._loop.call_later(EVERY, self._look)

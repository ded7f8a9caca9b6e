"""A thread that does one piece of work after another: where order matters, or work may block.

The one that enqueues has a connection besides (`streams.lent_reading`): it reads while it has nothing to do.
"""

import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..streams import LentReading

log = logging.getLogger("seaway.pjrt")
T = TypeVar("T")
Work = tuple[Callable[..., Any], tuple[Any, ...]]
BETWEEN = 1_000_000  # nanoseconds of work, after which the thread calls `between`, and reads what has come
EVENTS = select.POLLIN


def show_name() -> None:
    """Tells this thread's name to the system (Linux), so that its CPU time can be told from that of others."""
    try:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(threading.current_thread().name[:15], encoding="utf-8")
    except OSError:
        pass


class WorkerThread:
    """`failed` gets unexpected errors; the thread goes on. `between`: called before a pause, and now and then while
    there is work; returns the seconds after which it wants to be called again, or None."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._items: deque[Work | None] = deque()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._asleep = self._over = False
        self._late = False  # it is woken up when the loop has done what it does now
        self._lent: LentReading | None = None
        self._between: Callable[[], float | None] = lambda: None
        self._paused = 0  # when the thread last did what is between its work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # --- any thread -----------------------------------------------------------------------------------------------

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def reads(self, lent: LentReading, between: Callable[[], float | None]) -> None:
        """Reads this too, from now on."""
        self._lent, self._between = lent, between
        lent.wake = self.wake

    def do(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._put((work, arguments))

    def ask(self, work: Callable[..., T], *arguments: Any) -> T:
        """Waits for its turn, and returns its result. Also in this thread while the node decides here."""
        if threading.get_ident() == self.ident:
            self._work(decides=True)  # what was decided before comes first
            return work(*arguments)
        done: Future[T] = Future()

        def answered() -> None:
            try:
                done.set_result(work(*arguments))
            except BaseException as error:
                done.set_exception(error)

        self.do(answered)
        self.wake()
        return done.result()

    def end(self, patience: float = 5.0) -> bool:
        """Ends the thread behind all its work. False: the thread is stuck, and is left behind."""
        self._put(None)
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Whoever waits for the thread wakes it up himself, wherever that would have been put off."""
        if self._asleep:
            self._asleep = False
            with suppress(OSError):
                self._rope.send(b".")

    def _put(self, work: Work | None) -> None:
        self._items.append(work)
        if self._asleep and not self._late:
            if self._lent is None:
                self.wake()
            else:
                self._late = self._lent.behind(self._wake_late)

    def _wake_late(self) -> None:
        self._late = False
        self.wake()

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

    def _safely(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except BaseException as error:
            self._tell_of(error)
            return None

    def _tell_of(self, error: BaseException) -> None:
        """Tells of an error that nobody expected."""
        log.error("%s: %s", self._thread.name, error, exc_info=error)
        self._failed(error)

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

"""Delays Ctrl-C while the main thread is inside one of core's state machines, so that it is not left half changed.

Outside of them Ctrl-C works at once. In both cases the handler that was installed before the session is the one called.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class InterruptShield:
    """`with shield:` around code that must not be interrupted. Python runs signal handlers in the main thread only."""

    def __init__(self) -> None:
        self._depth = 0
        self._pending: tuple[int, FrameType | None] | None = None
        self._before: Handler | None = None
        self._users = 0
        self._main = 0  # the main thread's identity, once there was a session

    def raise_up(self) -> None:
        """A session begins: install the handler. Only the main thread can, and only it is ever interrupted."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._users += 1
        self._main = threading.get_ident()
        before = signal.getsignal(signal.SIGINT)
        if self._users == 1 and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._caught)

    def let_down(self) -> None:
        """A session ends: put the old handler back after the last one."""
        if threading.current_thread() is not threading.main_thread() or not self._users:
            return
        self._users -= 1
        if not self._users and self._before is not None:
            if signal.getsignal(signal.SIGINT) == self._caught:  # else other code has installed its own since
                signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._pending = number, frame
        elif self._before is not None:
            self._before(number, frame)
        else:
            signal.default_int_handler(number, frame)

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if threading.get_ident() != self._main:
            return
        self._depth -= 1
        if not self._depth and self._pending is not None:
            (number, frame), self._pending = self._pending, None
            (self._before or signal.default_int_handler)(number, frame)


SHIELD = InterruptShield()

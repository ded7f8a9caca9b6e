"""Ctrl-C while the main thread is inside a machine of core's: it waits until the machine is whole again.

Elsewhere it works at once, and whatever handler was there before is the one that acts.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class Shield:
    """`with shield:` around what must not be torn. Only signals of the main thread tear anything."""

    def __init__(self) -> None:
        self._depth = 0
        self._pending: tuple[int, FrameType | None] | None = None
        self._before: Handler | None = None
        self._users = 0

    def raise_up(self) -> None:
        """A session begins. Signals can be handled from the main thread only: elsewhere nothing tears."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._users += 1
        before = signal.getsignal(signal.SIGINT)
        if self._users == 1 and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._caught)

    def let_down(self) -> None:
        """A session ends."""
        if threading.current_thread() is not threading.main_thread() or not self._users:
            return
        self._users -= 1
        if not self._users and self._before is not None:
            if signal.getsignal(signal.SIGINT) == self._caught:  # else somebody else has put his there since
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
        if threading.current_thread() is threading.main_thread():
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if not self._depth and self._pending is not None:
            (number, frame), self._pending = self._pending, None
            (self._before or signal.default_int_handler)(number, frame)


SHIELD = Shield()

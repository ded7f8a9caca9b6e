"""One direction between two nodes of a process: messages are handed over as objects, without bytes, link or loop.

    Node --put, under its lock--> NearLane --flush, when the turn is over, in the same thread--> the other Node

What is put arrives once and in order, for as long as both nodes use this lane. Whoever has put something takes the
turn of the other machine, too: no thread wakes up for it. What is `patient` is left to the loop, so that a thread that
calls on and on is not held up, and more goes together. The sender's lock is not held meanwhile, so two nodes that speak
to each other at once do not wait for each other. Messages are frozen: both ends may have the same object.
Neighbours: `node`; `core.link.endpoint`, whose near peers have no link.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Take = Callable[[Any], bool]


class NearLane:
    """`take` takes what arrives at the other end. False: that node has given the lane up. Make it on the loop's
    thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Take) -> None:
        self._loop, self._take = loop, take
        self._thread = threading.get_ident()
        self._items: deque[Any] = deque()
        self._taking = threading.Lock()
        self._rung = False  # the loop will flush
        self.patient = False
        self.hung = False
        self.over = asyncio.Event()

    def put(self, message: Any) -> None:
        """None ends the lane, behind all that was put before."""
        self._items.append(message)

    def flush(self) -> None:
        """Hands over what was put. If another thread is at it, that one goes on with this."""
        if self.patient and threading.get_ident() != self._thread:
            if not self._rung:
                self._rung = True
                self._loop.call_soon_threadsafe(self._flush_in_loop)
            return
        while self._items and self._taking.acquire(blocking=False):
            try:
                while self._items:
                    message = self._items.popleft()
                    if message is None or not self._take(message):
                        self._items = deque(maxlen=0)  # nothing is taken any more
                        self._loop.call_soon_threadsafe(self.close)
            finally:
                self._taking.release()

    def _flush_in_loop(self) -> None:
        self._rung = False
        self.flush()

    def say(self, said: Any) -> None:
        self.put(said)
        self._loop.call_soon_threadsafe(self.flush)

    def end(self) -> None:
        """Ends the lane, behind all that was put before."""
        self.hung = True
        self.say(None)

    def close(self, why: str = "") -> None:
        self.over.set()

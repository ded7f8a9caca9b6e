"""What devices say, on its way to the node: in order, and ends of gangs together.

    devices' threads --post--> EndReports --tell_due, in the thread that enqueues; or in the loop--> node

Neighbours: `agent`; core's `link.batching`, which says when; `streams.lent_reading`, on the thread that enqueues.
"""

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import cast

from core.link import ReportPacer
from core.protocol import effects as e

from ..node import NetworkNode

BUSY = 0.0005  # seconds after which a thread tries again to have the node


class EndReports:
    """Events of devices on their way to the node, in order. Ends of gangs that come shortly after each other are
    reported together, as core's `ReportPacer` says; any other event takes those before it along at once. `thread`: the
    one that calls `tell_due` whenever it has done some work; events of other threads are told in the loop."""

    def __init__(self, node: NetworkNode) -> None:
        self._node = node
        self.thread: int | None = None
        self._lock = threading.Lock()
        self._said: list[e.Event] = []
        self._at_once = False  # something that does not wait is among them
        self._pacer = ReportPacer()
        self._rung = False  # the loop is already called
        self._timer: asyncio.TimerHandle | None = None

    def launched(self, seq: int) -> None:
        with self._lock:
            self._pacer.launched(seq)

    def abandoned(self, seqs: Iterable[int]) -> None:
        with self._lock:
            self._pacer.abandoned(seqs)

    def post(self, event: e.Event) -> None:
        """Takes an event, from any thread."""
        with self._lock:
            self._said.append(event)
            if isinstance(event, e.Finished):
                self._pacer.ended(event.seq)
            else:
                self._at_once = True
            if self._rung or threading.get_ident() == self.thread:
                return
            if len(self._said) > 1 and self._due() > 0:
                return
            self._rung = True
        if not self._node.stopped:
            self._node.soon(self._soon)

    def _due(self) -> int:
        """Nanoseconds until what was said is to be reported; under the lock."""
        now = time.monotonic_ns()
        return 0 if self._at_once else self._pacer.due(now) - now

    def tell_due(self) -> float | None:
        """Tells what is due, here, unless another thread has the node. Returns the seconds until more is due."""
        if not self._said:
            return None
        with self._lock:
            due = self._due() if self._said else 0
        if due > 0:
            return due / 1e9
        if not self._node.lock.acquire(blocking=False):
            return BUSY
        try:
            self._tell()
        finally:
            self._node.lock.release()
        return None

    def _soon(self) -> None:
        with self._lock:
            self._rung = False
            due = self._due() if self._said else 0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._node.loop.call_later(due / 1e9, self._tell) if due > 0 else None
        if due <= 0:
            self._tell()

    def _tell(self) -> None:
        """Tells all that was said, under the node's lock: so no other thread tells what came later before it."""
        with self._node.lock:
            with self._lock:
                said, self._said = self._said, []
                self._at_once = False
                if said:
                    self._pacer.reported(time.monotonic_ns())
            self._node.turn(lambda: self._feed(said))

    def _feed(self, said: Sequence[e.Event]) -> None:
        for together, events in groupby(said, lambda event: isinstance(event, e.Finished)):
            if together:
                ends = cast(tuple[e.Finished, ...], tuple(events))
                self._node.feed(ends[0] if len(ends) == 1 else e.FinishedTogether(ends))
            else:
                for event in events:
                    self._node.feed(event)

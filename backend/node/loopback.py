"""A connection between two nodes of one loop: replaces a stream, without bytes or sockets.

    Node --put--> LoopbackLane --in the loop, one turn later--> Node.take

Two lanes make a connection. Parcels on a lane arrive once and in order, as long as both nodes use this connection as
their current one. Messages are frozen, so both ends may have the same object. Neighbour: `node`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Deliver = Callable[[Any], bool]


class LoopbackLane:
    """One direction. `deliver` takes parcels at the other end. False: that node has a newer connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        self._loop, self._deliver = loop, deliver
        self._thread = threading.get_ident()
        self._items: deque[Any] = deque()
        self._rung = False
        self.hung = False
        self.over = asyncio.Event()

    def close(self, why: str = "") -> None:
        self.over.set()

    def end(self) -> None:
        """Ends the lane, behind all parcels before it."""
        self.hung = True
        self.put(None)

    def say(self, said: Any) -> None:
        self.put(said)

    def put(self, parcel: Any) -> None:
        """Puts a parcel, from any thread. None ends the lane, behind all parcels before it."""
        self._items.append(parcel)
        if self._rung:
            return  # `_carry` is already scheduled, and will find this parcel, too
        self._rung = True
        if threading.get_ident() == self._thread:
            self._loop.call_soon(self._carry)
        else:
            self._loop.call_soon_threadsafe(self._carry)

    def _carry(self) -> None:
        self._rung = False
        while self._items and not self.over.is_set():
            parcel = self._items.popleft()
            if parcel is None or not self._deliver(parcel):
                self.over.set()

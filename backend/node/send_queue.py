"""The queue of one connection, and how much of it goes into one message.

    any thread --put--> Outbox --take, in the loop--> parcels of one message, their contents loaded

Neighbours: `node`, which sends; `agent`, which reports ends of gangs in groups by the same rule.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from core.link import batching as gathering

from ..wire import Packet, envelopes

GATHER, GATHER_MOST = gathering.GATHER / 1e9, gathering.GATHER_MOST / 1e9  # seconds

log = logging.getLogger("seaway.node")
Load = Callable[[], bytes]


class SendQueue:
    """Parcels that one connection has still to send. Filled from any thread, emptied by its sender in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str = "", called: str = "") -> None:
        self.address, self.called = address, called  # the peer's address, and the name under which it called
        self._loop = loop
        self._items: deque[tuple[envelopes.Any, Load | None] | None] = deque()
        self._filled = asyncio.Event()
        self._gathering = gathering.BatchPacer()
        self._waiting = False
        self.hung = False  # nothing more may be put
        self.over = asyncio.Event()  # the connection is over: what is still queued is not sent
        self.writing = False  # gRPC is taking a message
        self.silent = True  # nothing has been received

    def put(self, parcel: envelopes.Any | None, load: Load | None = None) -> None:
        """Puts a parcel; None ends the queue."""
        self._items.append(None if parcel is None else (parcel, load))
        if self._waiting:
            self._waiting = False
            if threading.get_ident() == getattr(self._loop, "_thread_id", None):
                self._filled.set()
            else:
                self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[envelopes.Any]:
        """The parcels of the next message, with their contents loaded; empty at the end."""
        while not self._items:
            self._filled.clear()
            self._waiting = True
            if self._items:  # a parcel was put between the two lines above
                self._waiting = False
                break
            await self._filled.wait()
        found: list[envelopes.Any] = []
        size = 0
        while self._items and len(found) < gathering.MANY and size < gathering.BATCH:
            item = self._items.popleft()
            if item is None:
                self._items.appendleft(None)
                break
            parcel, load = item
            if load is not None and isinstance(parcel, Packet):
                parcel = Packet(parcel.packet, await self._loop.run_in_executor(None, loaded, load))
            size += len(parcel.packet) + len(parcel.contents) if isinstance(parcel, Packet) else 64
            found.append(parcel)
        return found

    def pause(self, number: int, nbytes: int) -> float:
        """Seconds to wait after a message of `number` parcels, which was just sent."""
        return self._gathering.pause(time.monotonic_ns(), number, nbytes) / 1e9


def loaded(load: Load) -> bytes:
    """Loads contents. If these no longer exist, because their gang was abandoned, it returns no bytes, which the
    receiver refuses as contents."""
    try:
        return load()
    except Exception as error:
        log.warning("contents that were to be sent cannot be had: %s", error)
        return b""

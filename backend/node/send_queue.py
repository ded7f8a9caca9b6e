"""What a connection has still to carry, and how much of it goes in one message.

    any thread --put--> Outbox --take, in the loop--> parcels of one message, their contents loaded

Neighbours: `node`, which sends; `agent`, whose ends of gangs are told in groups by the same rule.
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


class Outbox:
    """What one connection has still to carry. Filled from any thread, emptied by its sender in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str = "", called: str = "") -> None:
        self.address, self.called = address, called  # of who is at the other end, and as whom he came
        self._loop = loop
        self._items: deque[tuple[envelopes.Any, Load | None] | None] = deque()
        self._filled = asyncio.Event()
        self._gathering = gathering.Gathering()
        self._waiting = False
        self.hung = False  # nothing more is said here
        self.over = asyncio.Event()  # not even what is still to be sent
        self.writing = False  # a message is on its way into gRPC
        self.silent = True  # nothing has come

    def put(self, parcel: envelopes.Any | None, load: Load | None = None) -> None:
        """None: the end."""
        self._items.append(None if parcel is None else (parcel, load))
        if self._waiting:
            self._waiting = False
            if threading.get_ident() == getattr(self._loop, "_thread_id", None):
                self._filled.set()
            else:
                self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[envelopes.Any]:
        """As many as a message holds, their contents loaded; none at the end."""
        while not self._items:
            self._filled.clear()
            self._waiting = True
            if self._items:  # came between the two lines above
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
        """Seconds between a message of so many parcels, which has gone now, and the next."""
        return self._gathering.pause(time.monotonic_ns(), number, nbytes) / 1e9


def loaded(load: Load) -> bytes:
    """Contents may be gone, because whoever makes them was abandoned: then nothing is sent, which is not taken for
    contents."""
    try:
        return load()
    except Exception as error:
        log.warning("contents that were to be sent cannot be had: %s", error)
        return b""

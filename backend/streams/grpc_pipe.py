"""Hands connections that are not streams to this process's gRPC server, so that both have one port.

    a caller <--bytes as they are, TLS too--> pipe <--loopback--> the gRPC server of this process

The gRPC server sees a connection from loopback. `callers` says who is behind it, by the port from which it comes, so
that turns of calls and refusals go by the caller's own address. Neighbours: `listener`; `auth.refusal_log`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..auth import RefusalLogger, host_of

MOST = 2048  # connections
RATE = 128 << 20  # bytes a second that callers send: more would keep the loop from its streams
BURST = 8 << 20
KNOWN = 10.0  # seconds for which it says who was behind a connection that has ended


class GrpcPipe:
    """`port`: of the gRPC server, on loopback."""

    def __init__(self, port: int, refusals: RefusalLogger) -> None:
        self._port, self._refusals = port, refusals
        self._pairs: dict[_Half, str] = {}  # connections -> the hosts from which they come, in order
        self._credit, self._since = float(BURST), time.monotonic()

    async def carry(self, sock: socket.socket, begun: bytes, address: str) -> None:
        """Carries bytes both ways until either end closes, and closes the socket. `begun`: what was read already."""
        loop = asyncio.get_running_loop()
        outer, inner = _Half(self._came), _Half(lambda count: 0.0)
        outer.other, inner.other = inner, outer
        self._pairs[outer] = host_of(address)
        if len(self._pairs) > MOST:
            self._drop_one()
        here = ""
        try:
            await loop.create_connection(lambda: inner, "127.0.0.1", self._port)
            here = f"ipv4:127.0.0.1:{inner.transport.get_extra_info('sockname')[1]}"
            self._refusals.callers[here] = address
            inner.write(begun)
            await loop.connect_accepted_socket(lambda: outer, sock)
            await asyncio.wait([outer.over, inner.over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.pop(outer, None)
            if here:  # a call of this connection may still begin
                loop.call_later(KNOWN, self._forget, here, address)
            for half in (outer, inner):
                half.close()
            if outer.transport is None:
                sock.close()

    def _came(self, count: int) -> float:
        """Counts bytes of callers. Returns the seconds for which their connection is to rest."""
        now = time.monotonic()
        self._credit = min(BURST, self._credit + (now - self._since) * RATE) - count
        self._since = now
        return max(0.0, -self._credit / RATE)

    def _forget(self, here: str, address: str) -> None:
        if self._refusals.callers.get(here) == address:
            del self._refusals.callers[here]

    def _drop_one(self) -> None:
        """Closes the oldest connection of the host that has the most."""
        host = Counter(self._pairs.values()).most_common(1)[0][0]
        oldest = next(half for half, its in self._pairs.items() if its == host)
        del self._pairs[oldest]
        self._refusals.refuse("busy", host, "a connection", f"{MOST} connections of gRPC are open")
        for half in (oldest, oldest.other):
            half.close()

    def close(self) -> None:
        for half in list(self._pairs):
            half.close()
            half.other.close()


class _Half(asyncio.Protocol):
    """One of the two connections: what comes here is written there, no faster than it is taken. `came`: counts bytes
    that came, and says for how many seconds to rest."""

    other: _Half

    def __init__(self, came: Callable[[int], float]) -> None:
        self._loop, self._came = asyncio.get_running_loop(), came
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.transport: Any = None
        self._early = b""  # came before there was a connection
        self._rests = self._waits = False  # until it may go on, or the other one has written

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.write(self._early)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
        elif data and not self.over.done():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.other.write(data)
        seconds = self._came(len(data))
        if seconds > 0 and not self._rests:
            self._rests = True
            self._read_or_not()
            self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._read_or_not()

    def pause_writing(self) -> None:
        self.other.wait(True)

    def resume_writing(self) -> None:
        self.other.wait(False)

    def wait(self, waits: bool) -> None:
        self._waits = waits
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._rests or self._waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        elif not self.over.done():
            self.over.set_result(None)

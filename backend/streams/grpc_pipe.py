"""Hands connections that are not streams to this process's gRPC server, so that both have one port.

    a caller <--bytes as they are, TLS too--> pipe <--loopback--> the gRPC server of this process

The gRPC server sees a connection from loopback. `callers` says who is behind it, by the port from which it comes, so
that turns of calls and refusals go by the caller's own address. Neighbours: `listener`; `auth.refusal_log`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

from ..auth import RefusalLogger, host_of

MOST = 2048  # connections
KNOWN = 10.0  # seconds for which it says who was behind a connection that has ended


class GrpcPipe:
    """`port`: of the gRPC server, on loopback."""

    def __init__(self, port: int, door: RefusalLogger) -> None:
        self._port, self._door = port, door
        self._pairs: dict[_Half, str] = {}  # connections -> the hosts from which they come, in order

    async def carry(self, sock: socket.socket, begun: bytes, address: str) -> None:
        """Carries bytes both ways until either end closes, and closes the socket. `begun`: what was read already."""
        loop = asyncio.get_running_loop()
        outer, inner = _Half(), _Half()
        outer.other, inner.other = inner, outer
        self._pairs[outer] = host_of(address)
        if len(self._pairs) > MOST:
            self._drop_one()
        here = ""
        try:
            await loop.create_connection(lambda: inner, "127.0.0.1", self._port)
            here = f"ipv4:127.0.0.1:{inner.transport.get_extra_info('sockname')[1]}"
            self._door.callers[here] = address
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

    def _forget(self, here: str, address: str) -> None:
        if self._door.callers.get(here) == address:
            del self._door.callers[here]

    def _drop_one(self) -> None:
        """Closes the oldest connection of the host that has the most."""
        host = Counter(self._pairs.values()).most_common(1)[0][0]
        oldest = next(half for half, its in self._pairs.items() if its == host)
        del self._pairs[oldest]
        self._door.refuse("busy", host, "a connection", f"{MOST} connections of gRPC are open")
        for half in (oldest, oldest.other):
            half.close()

    def close(self) -> None:
        for half in list(self._pairs):
            half.close()
            half.other.close()


class _Half(asyncio.Protocol):
    """One of the two connections: what comes here is written there, no faster than it is taken."""

    other: _Half

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None
        self._early = b""  # came before there was a connection

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

    def pause_writing(self) -> None:
        if self.other.transport is not None and not self.other.over.done():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.over.done():
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        elif not self.over.done():
            self.over.set_result(None)

"""The door's sockets: who may connect, and bytes between them and the calls.

grpc_calls     one connection's calls
ifrt_service   what they mean

    server = await listen_for_clients(opening, "unix:/run/user/1000/seaway.sock")     server.address     server.close()

The protocol's client has neither TLS nor a token. So the door listens on a Unix socket that only its own user may open
(mode 0600, and the kernel says who connects), or on this machine's loopback, where every user of the machine may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Hashable
from pathlib import Path
from typing import Any, cast

from ...auth import is_loopback
from ...streams import listening
from ..session import Opening
from ..transport import GrpcConnection
from .ifrt_service import DEFAULT_LIMITS, Sessions, TransportLimits

LAST = 1.0  # seconds for a client to read why its connection ends
log = logging.getLogger("seaway.door")


class ListenRefused(ValueError):
    """The door may not or cannot listen at this address."""


async def listen_for_clients(opening: Opening, address: str, *, limits: TransportLimits = DEFAULT_LIMITS) -> DoorServer:
    """Listens at `unix:PATH` or HOST:PORT (0: a free port). Raises ListenRefused."""
    sock = _open(address)
    server = DoorServer(Sessions(opening, limits), limits, sock, address)
    await server._start()
    return server


class DoorServer:
    """`address` is what clients connect to, with the port that was opened."""

    def __init__(self, sessions: Sessions, limits: TransportLimits, sock: socket.socket, address: str) -> None:
        self.sessions, self.limits = sessions, limits
        self.connections: set[_Connection] = set()
        self._socket, self._path = sock, None
        self._server: asyncio.Server | None = None
        if address.startswith("unix:"):
            self.address = address
            self._path = Path(address.removeprefix("unix:")).absolute()
        else:
            self.address = f"{address.rpartition(':')[0]}:{sock.getsockname()[1]}"

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        make: Any = loop.create_unix_server if self._path is not None else loop.create_server
        self._server = await make(lambda: _Connection(self), sock=self._socket, backlog=128)

    def close(self) -> None:
        """Takes no clients any more, ends all sessions, and closes all sockets."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.end("the server stops")
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class _Connection(asyncio.Protocol):
    """One connection of a client. It writes once for all that was received at once."""

    def __init__(self, server: DoorServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer: Hashable = None
        self._grpc = GrpcConnection(lambda call: server.sessions.begin(call, self._peer), self._wake)
        self._awake = False  # a write is on its way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        try:
            self._peer = _peer_of(transport)
        except PermissionError as error:
            log.warning("a connection was refused: %s", error)
            transport.abort()
            return
        if len(self._server.connections) >= self._server.limits.connections:
            log.warning("a connection was refused: there are %d already", len(self._server.connections))
            transport.abort()
            return
        self._transport = transport
        self._server.connections.add(self)
        self._write()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._grpc.receive(data)
        self._write()
        if self._grpc.over:
            self._close(self._transport)

    def pause_writing(self) -> None:
        """The client reads too slowly: nothing more is read of it, for all that we read makes answers."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._server.connections.discard(self)
            self._grpc.lost("the client has gone")

    def end(self, why: str) -> None:
        self._grpc.end(why)
        self._write()
        if self._transport is not None:
            self._close(self._transport)

    def _close(self, transport: asyncio.Transport) -> None:
        """Closes when the client has read what was said, or has not read it for a while."""
        transport.close()
        self._loop.call_later(LAST, transport.abort)

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._awake = False
        if self._transport is not None and (data := self._grpc.outgoing()):
            self._transport.write(data)


def _open(address: str) -> socket.socket:
    """The listening socket. Raises ListenRefused."""
    if address.startswith("unix:"):
        mask = os.umask(0o177)  # so that there is no moment in which others may connect
        try:
            return listening(address)
        except OSError as error:
            raise ListenRefused(f"cannot listen at {address}: {error.strerror or error}") from None
        finally:
            os.umask(mask)
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ListenRefused(f"{address} is no address; write unix:PATH or HOST:PORT, e.g. 127.0.0.1:0")
    if not is_loopback(address):
        raise ListenRefused(
            f"{address} may be reached from other machines, and JAX's client speaks no TLS: listen at unix:PATH or "
            "127.0.0.1:PORT, and start a door on each machine"
        )
    try:
        return listening(address)
    except OSError as error:
        raise ListenRefused(f"cannot listen at {address}: {error}") from None


def _peer_of(transport: asyncio.Transport) -> Hashable:
    """Who is at the other end; a session is only good for whoever opened it. Raises PermissionError."""
    sock = transport.get_extra_info("socket")
    if sock.family != socket.AF_UNIX:  # the loop has set TCP_NODELAY
        return str(transport.get_extra_info("peername")[0])
    process, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.getuid():
        raise PermissionError(f"user {user} connected to a socket of user {os.getuid()}")
    return process, user

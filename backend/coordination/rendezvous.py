"""Members of a world meet before JAX is told of it, since a process cannot leave JAX's own wait for the others.

Each member connects to the world's coordination process and sends its rank. When all have arrived, each is told the
port of JAX's service. Until then any member may leave: because a newer epoch overtakes it, or because it ends.
Neighbours: `service`, which serves; `pjrt.world`, which waits.
"""

import asyncio
import socket
import threading
import time
from contextlib import suppress

SAY_S = 10.0  # seconds for a member to connect, and to send its rank
LONGEST = 16  # most bytes of a line
# Errors of connections that are not a member's, or that end.
STRANGE = (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


def world_name(island: int, epoch: int) -> str:
    """The name under which hosts find the address of an epoch's meeting."""
    return f"world/{island}/{epoch}"


class Overtaken(Exception):
    """A newer epoch has begun: the world that was to be joined is not needed any more."""


class Rendezvous:
    """The serving side. Members are told `port` when all `members` have arrived."""

    def __init__(self, members: int, port: int) -> None:
        self._members, self._port = members, port
        self._here: dict[int, asyncio.StreamWriter] = {}
        self._complete = False

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one connection, from its beginning to its end."""
        with suppress(*STRANGE):
            rank = int(await asyncio.wait_for(reader.readuntil(b"\n"), SAY_S))
            if 0 <= rank < self._members:
                await self._wait(rank, reader, writer)
        with suppress(OSError):
            writer.close()

    async def _wait(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before = self._here.get(rank)
        if before is not None:
            before.close()
        self._here[rank] = writer
        if self._complete or len(self._here) == self._members:
            self._complete = True
            for member in self._here.values():
                member.write(b"%d\n" % self._port)
        await reader.read(1)  # a member sends nothing more: this returns when it leaves
        if self._here.get(rank) is writer:
            del self._here[rank]


class RendezvousMember:
    """One member's side: `wait` until all have arrived, unless another thread calls `leave`."""

    def __init__(self, address: str, rank: int) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port, self._rank = host.strip("[]"), int(port), rank
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._socket: socket.socket | None = None

    def wait(self, seconds: float) -> str:
        """Returns the address of JAX's service. If the coordination process dies, it waits for the newer epoch
        that follows, and raises Overtaken. Raises OSError if it cannot be reached."""
        until = time.monotonic() + seconds
        told, failed = b"", None
        try:
            told = self._told(seconds)
        except OSError as error:
            if self._socket is None:
                until, failed = min(until, time.monotonic() + SAY_S), error
        finally:
            self._close()
        if told.endswith(b"\n") and not self._left.is_set():
            host = f"[{self._host}]" if ":" in self._host else self._host
            return f"{host}:{int(told)}"
        if self._left.wait(max(0.0, until - time.monotonic())):
            raise Overtaken("a newer epoch has begun")
        if failed is not None:
            raise ConnectionError(
                f"the coordination process at {self._host}:{self._port}, a child of the controller, cannot be reached: "
                f"{failed}"
            )
        raise TimeoutError(f"not all members of the world at {self._host}:{self._port} arrived within {seconds:g} s")

    def leave(self) -> None:
        """Ends the wait, from any thread."""
        self._left.set()
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _told(self, seconds: float) -> bytes:
        connection = socket.create_connection((self._host, self._port), SAY_S)
        with self._lock:
            self._socket = connection
        if self._left.is_set():
            return b""
        connection.sendall(b"%d\n" % self._rank)
        connection.settimeout(seconds)
        told = b""
        while not told.endswith(b"\n") and len(told) < LONGEST and (part := connection.recv(LONGEST)):
            told += part
        return told

    def _close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

"""Members of a world come together before JAX is told of it: JAX's own wait for the others cannot be left again.

Each member dials the world's coordination process and says its rank. When all are there, each is told the port of JAX's
service. Until then any of them may go: by itself when a newer epoch overtakes it, or because it ends.
Neighbours: `coordination`, which serves; `pjrt.world`, which waits.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress

SAY_S = 10.0  # for a member to say its rank, and for it to reach the port
LONGEST = 16  # bytes of a line
# What a connection may do that is no member's, or goes.
STRANGE = (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


def world_name(island: int, epoch: int) -> str:
    """By which hosts find the address of an epoch's meeting."""
    return f"world/{island}/{epoch}"


class Overtaken(Exception):
    """Nobody needs the world any more that was to be joined."""


class Meeting:
    """Serves: `port` is what members are told once all `members` are there."""

    def __init__(self, members: int, port: int) -> None:
        self._members, self._port = members, port
        self._here: dict[int, asyncio.StreamWriter] = {}
        self._complete = False

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""
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
        await reader.read(1)  # it says nothing more: it goes
        if self._here.get(rank) is writer:
            del self._here[rank]


class Arrival:
    """One member's: `wait` until all are there, unless somebody calls `leave`."""

    def __init__(self, address: str, rank: int) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port, self._rank = host.strip("[]"), int(port), rank
        self._lock = threading.Lock()
        self._left = threading.Event()
        self._socket: socket.socket | None = None

    def wait(self, seconds: float) -> str:
        """Where JAX's service is. If the coordination process dies, a newer epoch comes: it waits for that."""
        until = time.monotonic() + seconds
        try:
            told = self._told(seconds)
        except OSError:
            told = b""
        finally:
            self._close()
        if told.endswith(b"\n") and not self._left.is_set():
            host = f"[{self._host}]" if ":" in self._host else self._host
            return f"{host}:{int(told)}"
        if self._left.wait(max(0.0, until - time.monotonic())):
            raise Overtaken("a newer epoch has begun")
        raise TimeoutError(
            f"not all members of the world at {self._host}:{self._port} came within {seconds:g} s"
        )

    def leave(self) -> None:
        """Any thread."""
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

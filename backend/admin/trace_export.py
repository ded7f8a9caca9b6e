"""Sends the controller's trace: its columns, packed, in pages that fit into a message.

A snapshot is taken when its first page is requested, and kept while the others are fetched. Neighbours: `server`,
which keeps snapshots; `seaway.sessions.connected`, which restores the controller's `Trace` from them.
"""

from __future__ import annotations

import threading
import zlib

import grpc
import grpc.aio
import msgspec

from core.record import LiveLook, Look, Trace, TracedPlace

from ..auth import Access
from ..node import CallError, calls
from ..wire import LookReply, call_messages, versions

PAGE = 8 << 20  # bytes
KEPT = 2  # snapshots


class Columns(msgspec.Struct, frozen=True):
    words: list[str]
    places: dict[int, TracedPlace]
    columns: dict[str, dict[str, bytes]]
    since: int = 0


class TraceSnapshot:
    """A copy of a trace: taken under the lock of its writer, packed without it."""

    def __init__(self, trace: Trace) -> None:
        self._words, self._places = list(trace.strings.words), dict(trace.places)
        self._columns = trace.columns()  # these columns never change
        self._since = trace.since

    def packed(self) -> bytes:
        columns = {
            table: {name: column.tobytes() for name, column in found.items()} for table, found in self._columns.items()
        }
        return zlib.compress(msgspec.msgpack.encode(Columns(self._words, self._places, columns, self._since)), 1)


def unpacked(data: bytes) -> Trace:
    found = msgspec.msgpack.decode(zlib.decompress(data), type=Columns)
    return Trace.restored(found.words, found.places, found.columns, found.since)


class SnapshotShelf:
    """The latest snapshots, packed."""

    def __init__(self, page: int = PAGE) -> None:
        self._page = page
        self._all: dict[int, bytes] = {}
        self._count = 0
        self._lock = threading.Lock()

    def put(self, snapshot: TraceSnapshot) -> int:
        """Packs and keeps a snapshot, in any thread; returns its number."""
        data = snapshot.packed()
        with self._lock:
            self._count += 1
            self._all[self._count] = data
            while len(self._all) > KEPT:
                del self._all[next(iter(self._all))]
            return self._count

    def page(self, number: int, at: int) -> call_messages.RecordedPage:
        """One page of a snapshot. Raises Wrong."""
        with self._lock:
            data = self._all.get(number)
        if data is None:
            raise CallError(f"snapshot {number} of the trace is gone: ask anew", grpc.StatusCode.NOT_FOUND)
        pages = max(1, -(-len(data) // self._page))
        if not 0 <= at < pages:
            raise CallError(f"snapshot {number} of the trace has {pages} pages, and no page {at}")
        return call_messages.RecordedPage(number, pages, data[at * self._page : (at + 1) * self._page])


async def fetched(address: str, access: Access, timeout: float = 60.0) -> Trace:
    """Fetches the trace of the controller at `address`, in a loop. Raises Wrong."""
    channel = access.channel(address)
    try:
        first: call_messages.RecordedPage = await calls.ask(channel, access, call_messages.Recorded(), timeout)
        parts = [first.contents]
        for at in range(1, first.pages):
            more: call_messages.RecordedPage = await calls.ask(
                channel, access, call_messages.Recorded(first.snapshot, at), timeout
            )
            parts.append(more.contents)
    finally:
        await channel.close()
    return unpacked(b"".join(parts))


# --- looks at what is new ------------------------------------------------------------------------------------------


def packed(look: LiveLook) -> LookReply:
    return LookReply(versions.mine(), msgspec.msgpack.encode(look))


async def fetch_look(channel: grpc.aio.Channel, access: Access, request: Look, timeout: float) -> LiveLook:
    """Look at the controller behind a channel. Raises CallError."""
    found: LookReply = await calls.ask(channel, access, request, timeout)
    if found.version != versions.mine():
        raise CallError(
            f"Seaway {found.version} answers there, and Seaway {versions.mine()} asks: it must be the same; "
            f"`seaway status` works with any",
            versions.OTHER,
        )
    return msgspec.msgpack.decode(found.packed, type=LiveLook)

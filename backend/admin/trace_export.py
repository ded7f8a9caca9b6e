"""Sends the controller's trace: its columns, packed, in pages that fit into a message.

A snapshot is taken when its first page is requested, and kept while the others are fetched. Neighbours: `server`,
which keeps snapshots; `seaway.sessions.connected`, which restores the controller's `Trace` from them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import TypeVar

import grpc
import grpc.aio
import msgspec

from core.record import FAILED, PLACEHOLDER, EndedGang, LiveLook, Look, Trace, TracedPlace, taken, typical

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


# --- how long computations took ---------------------------------------------------------------------------------------

# A better estimate of the next execution than any model. The result is one time for each step's name: over all
# clients, or for each client by itself, since two clients may give one name to different steps.

K = TypeVar("K", bound=Hashable)
LAST = 1000  # most gangs that are read, the latest ones
NOBODY = -1  # the client of a gang whose run is not in the trace any more


def durations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Name -> (executions, typical time in nanoseconds). Call it under the lock that protects the trace."""
    found = taken(_last(trace, trace.gangs.column("step").__getitem__), trace.places)
    return {trace.strings.words[step]: (len(took), typical(took)) for step, took in found.items()}


def durations_of(trace: Trace, clients: Collection[int]) -> dict[int, dict[str, tuple[int, int]]]:
    """The same for each of these clients that has a gang which shows it, by the controller's numbers of them."""
    step, run, client = trace.gangs.column("step"), trace.gangs.column("run"), trace.runs.column("client")

    def which(row: int) -> tuple[int, int]:
        return client[run[row]] if run[row] >= 0 else NOBODY, step[row]

    found: dict[int, dict[str, tuple[int, int]]] = {}
    for (number, word), took in taken(_last(trace, which), trace.places).items():
        if number in clients:
            found.setdefault(number, {})[trace.strings.words[word]] = len(took), typical(took)
    return found


def _last(trace: Trace, which: Callable[[int], K]) -> Iterator[EndedGang[K]]:
    """`which`: what the gang of a row executed."""
    ended, entered, place, flags = (trace.gangs.column(name) for name in ("ended", "entered", "place", "flags"))
    for row in range(max(0, len(trace.gangs) - LAST), len(trace.gangs)):
        if ended[row] >= 0:
            failed = bool(flags[row] & (FAILED | PLACEHOLDER))
            yield EndedGang(ended[row], entered[row], place[row], which(row), failed)

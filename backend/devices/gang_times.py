"""When a host enqueued its gangs and saw them end, by its own clock: kept on the host, and fetched on request.

    devices --took--> Stamps (the latest records)  --Stamps, with a permit-->  a session: in the controller's time

Hosts send these times only on request, so reports up the tree stay as they are. A client gets the times of its own
runs: the controller signs which runs these are (`permitted`), and hosts, which have the same secret, check the
signature. A host sends its own times and what it knows of the controller's clock; the caller converts them.
Neighbours: `clock_sync`; `timed`, `pjrt.completions`, which record; `agent`, which answers; `core.record.clocks`.
"""

import asyncio
import hashlib
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

import grpc
import msgspec
import numpy as np

from core.link import Unreadable
from core.record import PeerClock, Reading

from ..auth import Access, access
from ..node import CallError
from ..streams import StreamRefused, ask
from ..wire import call_messages

ROOM = 1 << 14  # gangs that a host keeps
RUNS = 1 << 16  # most ranges of runs in a permit, the latest ones
AT_ONCE = 32  # hosts that are asked at the same time
RECORD = Struct("<qqqqB")
KINDS: list[tuple[str, str]] = [
    ("seq", "<i8"), ("run", "<i8"), ("enqueued", "<i8"), ("ended", "<i8"), ("collective", "u1")
]  # fmt: skip
LOOK = np.dtype(KINDS)
Clocked = Callable[[], int]
Rows = np.ndarray[Any, Any]


class GangTimes:
    """A ring of records. `now`: the host's clock. One thread writes, any thread may read."""

    def __init__(self, now: Clocked = time.monotonic_ns, room: int = ROOM) -> None:
        self.now = now
        self._room, self._count = room, 0
        self._data = bytearray(RECORD.size * room)

    def took(self, seq: int, run: int, enqueued: int, ended: int, collective: bool) -> None:
        """Records a gang that is over. Every gang passes here, so it is as cheap as possible."""
        at = self._count % self._room
        RECORD.pack_into(self._data, at * RECORD.size, seq, run, enqueued, ended, collective)
        self._count += 1

    def __len__(self) -> int:
        return min(self._count, self._room)

    def of(self, runs: Iterable[tuple[int, int]], most: int = ROOM) -> Rows:
        """The records of these ranges of runs, in order; at most `most`, the latest ones."""
        count, data = self._count, bytes(self._data)  # copied at once, since another thread may write
        rows = np.frombuffer(data, LOOK)[: min(count, self._room)]
        if count > self._room:
            rows = np.roll(rows, -(count % self._room))
        edges = np.array(list(runs), dtype=np.int64).reshape(-1, 2)
        which = np.searchsorted(edges[:, 0], rows["run"], "right") - 1
        mine = which >= 0
        mine[mine] = rows["run"][mine] < edges[which[mine], 1]
        found = rows[mine]
        return found[max(0, len(found) - most) :]


# --- which runs a client may ask for ------------------------------------------------------------------------------


def stretches(runs: Iterable[int]) -> list[tuple[int, int]]:
    """Runs as ranges (first, one past the last); at most `RUNS`, the latest ones."""
    found: list[list[int]] = []
    for run in sorted(runs):
        if found and found[-1][1] >= run:
            found[-1][1] = run + 1
        else:
            found.append([run, run + 1])
    return [(low, high) for low, high in found[-RUNS:]]


def permitted(secret: bytes, runs: Iterable[int], clients: Iterable[int], mine: set[int]) -> call_messages.Permitted:
    """Signs which of these runs belong to the clients in `mine`; `clients`: the client of each run."""
    own = stretches(run for run, client in zip(runs, clients, strict=True) if client in mine)
    data = _packed(number for pair in own for number in pair)
    return call_messages.Permitted(data, access.proof(secret, _name(data)))


def answer(
    secret: bytes, request: call_messages.GangTimesReply, stamps: GangTimes, clock: PeerClock
) -> call_messages.Stamped:
    """A host's answer to a request. Raises Wrong."""
    if not access.proves(secret, _name(request.runs), request.proof):
        raise CallError("the controller has not signed this", grpc.StatusCode.PERMISSION_DENIED)
    runs = _pairs(request.runs, 2)
    rows = stamps.of(runs, max(0, min(request.most, ROOM)))
    readings = _packed(number for each in clock.readings for number in each)
    return call_messages.Stamped(rows.tobytes(), readings, -1 if clock.since is None else clock.since, clock.rate)


def _name(runs: bytes) -> str:
    return f"runs/{hashlib.sha256(runs).hexdigest()}"


def _packed(numbers: Iterable[int]) -> bytes:
    return np.array(array("q", numbers), dtype="<i8").tobytes()


def _pairs(data: bytes, size: int) -> list[Any]:
    """Tuples of `size` numbers. Raises ValueError."""
    if len(data) % (8 * size):
        raise ValueError(f"{len(data)} bytes are no tuples of {size} numbers")
    return [tuple(each) for each in np.frombuffer(data, "<i8").reshape(-1, size).tolist()]


# --- in the controller's time -------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """A gang on a host, in the controller's time; each time is within `bound` of the truth."""

    host: int
    seq: int
    enqueued: int
    ended: int
    bound: int
    collective: bool


def taken(host: int, found: call_messages.Stamped) -> list[Taken]:
    """A host's gangs whose time is known, in the controller's time. Raises ValueError for an impossible answer."""
    if len(found.records) % RECORD.size:
        raise ValueError(f"{len(found.records)} bytes are no records of gangs")
    readings = [Reading(*each) for each in _pairs(found.readings, 3)]
    clock = PeerClock.restored(readings, None if found.since < 0 else found.since, found.rate)
    rows = []
    for seq, _, enqueued, ended, collective in RECORD.iter_unpack(found.records):
        begun, over = clock.at(enqueued), clock.at(ended)
        if begun is not None and over is not None:
            bound = max(begun.bound, over.bound)
            times = enqueued + begun.offset, ended + over.offset
            if max(map(abs, (*times, bound))) > call_messages.MOST:
                raise ValueError(f"gang {seq} took place at {times[0]}, which is no time")
            rows.append(Taken(host, seq, *times, bound, bool(collective)))
    return rows


class Fetched(NamedTuple):
    rows: list[Taken]
    missing: dict[int, str]  # hosts that did not answer, or whose answer cannot be read


async def fetched(
    addresses: Mapping[int, str], shown: Access, allowed: call_messages.Permitted, most: int, timeout: float,
    mine: tuple[str, str] = ("", ""),
) -> Fetched:  # fmt: skip
    """Fetches at most `most` gangs from each of these hosts, in a loop. `mine`: as in `ask`, a name and its proof."""
    gate = asyncio.Semaphore(AT_ONCE)
    request = call_messages.GangTimesReply(allowed.runs, allowed.proof, most)
    found = Fetched([], {})

    async def one(host: int, address: str) -> None:
        async with gate:
            try:
                answer = await ask(address, shown, request, timeout, *mine)
                said = msgspec.msgpack.decode(answer, type=call_messages.Stamped)
                found.rows.extend(await asyncio.to_thread(taken, host, said))
            except (StreamRefused, Unreadable, OSError, msgspec.MsgspecError, ValueError, OverflowError) as error:
                found.missing[host] = str(error) or "no answer"

    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(one(host, address) for host, address in sorted(addresses.items())))
    except TimeoutError:
        here = {row.host for row in found.rows}
        found.missing.update({host: "no answer yet" for host in addresses if host not in here})
    return found

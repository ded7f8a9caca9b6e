"""When a host enqueued its gangs and saw them end, by its own clock: kept there for whoever asks, and fetched.

    devices --took--> Stamps (the last of them)  --Stamps, with a permit-->  a session: in the controller's time

Nobody is told of them unasked: what is reported up the tree stays as it is. A client gets those of its own runs: the
controller signs which runs these are (`permitted`), and hosts, who have the same secret, answer to what is signed. What
travels are the host's own times, and what it knows of the controller's clock; whoever asks does the arithmetic.
Neighbours: `clock_sync`; `timed`, `pjrt.completions`, which stamp; `agent`, which answers; `core.record.clocks`.
"""

from __future__ import annotations

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

from core.record import Clock, Reading

from ..auth import Access, access
from ..node import Wrong, calls
from ..wire import call_messages

ROOM = 1 << 14  # gangs, of each host
RUNS = 1 << 16  # stretches of runs in a permit: the last so many
AT_ONCE = 32  # hosts that are asked
RECORD = Struct("<qqqqB")
KINDS: list[tuple[str, str]] = [
    ("seq", "<i8"), ("run", "<i8"), ("enqueued", "<i8"), ("ended", "<i8"), ("collective", "u1")
]  # fmt: skip
LOOK = np.dtype(KINDS)
Clocked = Callable[[], int]
Rows = np.ndarray[Any, Any]


class Stamps:
    """A ring of records. `now`: the host's clock. One thread writes, any may read."""

    def __init__(self, now: Clocked = time.monotonic_ns, room: int = ROOM) -> None:
        self.now = now
        self._room, self._count = room, 0
        self._data = bytearray(RECORD.size * room)

    def took(self, seq: int, run: int, enqueued: int, ended: int, collective: bool) -> None:
        """A gang is over. This is on the way of every gang: it costs as little as can be."""
        at = self._count % self._room
        RECORD.pack_into(self._data, at * RECORD.size, seq, run, enqueued, ended, collective)
        self._count += 1

    def __len__(self) -> int:
        return min(self._count, self._room)

    def of(self, runs: Iterable[tuple[int, int]], most: int = ROOM) -> Rows:
        """Those of these stretches of runs, in order; of more than `most` the last."""
        count, data = self._count, bytes(self._data)  # one copy, while nobody writes
        rows = np.frombuffer(data, LOOK)[: min(count, self._room)]
        if count > self._room:
            rows = np.roll(rows, -(count % self._room))
        edges = np.array(list(runs), dtype=np.int64).reshape(-1, 2)
        which = np.searchsorted(edges[:, 0], rows["run"], "right") - 1
        mine = which >= 0
        mine[mine] = rows["run"][mine] < edges[which[mine], 1]
        found = rows[mine]
        return found[max(0, len(found) - most) :]


# --- who may ask for which ----------------------------------------------------------------------------------------


def stretches(runs: Iterable[int]) -> list[tuple[int, int]]:
    """(first, one past the last) of runs that follow one another; the last `RUNS` of these."""
    found: list[list[int]] = []
    for run in sorted(runs):
        if found and found[-1][1] >= run:
            found[-1][1] = run + 1
        else:
            found.append([run, run + 1])
    return [(low, high) for low, high in found[-RUNS:]]


def permitted(
    secret: bytes, runs: Iterable[int], clients: Iterable[int], mine: set[int]
) -> call_messages.Permitted:
    """`clients`: by run, whose it is."""
    own = stretches(run for run, client in zip(runs, clients, strict=True) if client in mine)
    data = _packed(number for pair in own for number in pair)
    return call_messages.Permitted(data, access.proof(secret, _name(data)))


def answer(
    secret: bytes, request: call_messages.Stamps, stamps: Stamps, clock: Clock
) -> call_messages.Stamped:
    """In a host. Raises Wrong."""
    if not access.proves(secret, _name(request.runs), request.proof):
        raise Wrong("the controller has not signed this", grpc.StatusCode.PERMISSION_DENIED)
    runs = _pairs(request.runs, 2)
    rows = stamps.of(runs, max(0, min(request.most, ROOM)))
    readings = _packed(number for each in clock.readings for number in each)
    return call_messages.Stamped(
        rows.tobytes(), readings, -1 if clock.since is None else clock.since, clock.rate
    )


def _name(runs: bytes) -> str:
    return f"runs/{hashlib.sha256(runs).hexdigest()}"


def _packed(numbers: Iterable[int]) -> bytes:
    return np.array(array("q", numbers), dtype="<i8").tobytes()


def _pairs(data: bytes, size: int) -> list[Any]:
    """Tuples of so many numbers. Raises ValueError."""
    if len(data) % (8 * size):
        raise ValueError(f"{len(data)} bytes are no tuples of {size} numbers")
    return [tuple(each) for each in np.frombuffer(data, "<i8").reshape(-1, size).tolist()]


# --- in the controller's time -------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """A gang on a host, in the controller's time; each of its times is within `bound` of the truth."""

    host: int
    seq: int
    enqueued: int
    ended: int
    bound: int
    collective: bool


def taken(host: int, found: call_messages.Stamped) -> list[Taken]:
    """Without those of which nobody knows what time it was. Raises ValueError: a host has said what cannot be."""
    if len(found.records) % RECORD.size:
        raise ValueError(f"{len(found.records)} bytes are no records of gangs")
    readings = [Reading(*each) for each in _pairs(found.readings, 3)]
    clock = Clock.restored(readings, None if found.since < 0 else found.since, found.rate)
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
    missing: dict[int, str]  # hosts that did not answer, or not with anything that can be read


async def fetched(
    addresses: Mapping[int, str], shown: Access, allowed: call_messages.Permitted, most: int, timeout: float
) -> Fetched:
    """Of these hosts, at most so many gangs of each. In a loop."""
    gate = asyncio.Semaphore(AT_ONCE)
    request = call_messages.Stamps(allowed.runs, allowed.proof, most)
    found = Fetched([], {})

    async def one(host: int, address: str) -> None:
        async with gate:
            channel = shown.channel(address)
            try:
                said: call_messages.Stamped = await calls.ask(channel, shown, request, timeout, wait=False)
                found.rows.extend(await asyncio.to_thread(taken, host, said))
            except (Wrong, msgspec.MsgspecError, ValueError, OverflowError) as error:
                found.missing[host] = str(error)
            finally:
                await channel.close()

    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(one(host, address) for host, address in sorted(addresses.items())))
    except TimeoutError:
        here = {row.host for row in found.rows}
        found.missing.update({host: "no answer yet" for host in addresses if host not in here})
    return found

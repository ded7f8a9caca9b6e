"""Contents of transfers: pieces are cut out of shards at the sender, and assembled to shards at the receiver.

There is a `ShardSource` or a `Sink` for each half of a transfer that core opens, on hosts and at clients. Pieces are
those of `core.model.resharding` where both layouts are known, otherwise whole shards, numbered row-major. A client has
whole arrays: their shards are views (`cut`, `ArraySink`). This module uses numpy and no device; contents are bytes in C
order.

In a sparse exchange, a shard's rows consist of whole words: the first word says to which shard of the target the row
goes, the second which row it was (see `seaway.api.routing`). Piece `s * targets + t` holds the rows of source shard s
for target shard t. Behind the rows that came, a target shard is filled with rows of zeros whose second word is -1.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from core.model import Index, Layout, Shards
from core.protocol import Chunk
from core.protocol import effects as e
from core.transfer import ALL

from .host_pieces import Box, HostPieces, Spot, shards_of

Array = np.ndarray[Any, Any]
Shelf = Mapping[Index, Array]  # shards of one layout
SMALL = 64 << 10  # bytes that are copied sooner than another thread wakes up
ALIGN = 64  # bytes: devices can take over memory with this alignment without a copy


class ContentsMismatch(ValueError):
    """Contents that do not fit the place for which they are meant."""


class Overflow(ValueError):
    """A sparse exchange sent more rows to a shard than it has room for."""


# --- arrays -----------------------------------------------------------------------------------------------------


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of core's name. Keys of `jax.random` travel as their data, eight bytes each."""
    if name == "key<fry>":
        return np.dtype(np.uint64)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


def empty(shape: Sequence[int], dtype: str) -> Array:
    """An aligned array without contents."""
    kind = numpy_dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    raw = np.empty(nbytes + ALIGN, np.uint8)
    skip = -raw.ctypes.data % ALIGN
    return raw[skip : skip + nbytes].view(kind).reshape(tuple(shape))


def raw_bytes(array: Array) -> memoryview:
    """An array's contents in C order; a copy only if they lie otherwise."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")


def box_of(shards: Shards, index: Index) -> Box:
    """Where a shard lies in the array."""
    parts = zip(index, shards.size, strict=True)
    return *(slice(part * size, (part + 1) * size) for part, size in parts), ...


def index_of(shards: Shards, ordinal: int) -> Index:
    """The index of the shard with this number."""
    if not 0 <= ordinal < shards.count:
        raise ContentsMismatch(f"there is no shard {ordinal} of {shards.count}")
    found = []
    for parts in reversed(shards.parts):
        ordinal, part = divmod(ordinal, parts)
        found.append(part)
    return tuple(reversed(found))


def cut(layout: Layout, array: Array) -> dict[Index, Array]:
    """All distinct shards of an array, as views of it."""
    shards = Shards(layout)
    if tuple(array.shape) != tuple(layout.shape):
        raise ContentsMismatch(f"an array of shape {array.shape} where {layout.shape} is expected")
    return {index: array[box_of(shards, index)] for index in product(*map(range, shards.parts))}


# --- sending ----------------------------------------------------------------------------------------------------


class ShardSource:
    """The contents of an OpenSend. `fetch` returns the shards that there are of a buffer; it is called once a buffer,
    in the first thread that needs them. `pieces`: the host's, for moves. `sparse`: whether the pieces are those that
    were counted (see `pjrt.rows`)."""

    def __init__(
        self, send: e.OpenSend, pieces: HostPieces | None, fetch: Callable[[int], Shelf], *, sparse: bool = False
    ) -> None:
        if not send.sources:
            raise ContentsMismatch(
                f"transfer {send.transfer} is to be sent, but the layout of buffer {send.buffers[0]} is not known"
            )
        self._send, self._host, self.sparse = send, pieces, sparse
        self._shards = shards_of(send.sources[0])
        self._sizes = {piece: nbytes for _, piece, nbytes in send.pieces}
        self._fetch, self._shelves = fetch, dict[int, Shelf]()  # by buffer
        self._lost: dict[int, str] = {}  # by buffer: why it could not be fetched, which is not tried for each chunk
        self._pieces: dict[int, memoryview] = {}  # pieces that are partly sent
        self._spots: Mapping[int, Spot] | None = None  # of a move: filled when first needed
        self._lock = threading.Lock()

    def at_hand(self, chunk: Chunk, there: Callable[[int], bool]) -> bool:
        """Whether `bytes_of` neither waits nor copies much. `there`: whether a buffer's shards can be had without a
        wait."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if chunk.piece in self._pieces:
                return True
            size = self._sizes.get(chunk.piece)
            spot = None if size is None or self.sparse else self._spot(chunk.piece)
            if size is None or spot is None:
                return size is not None and size <= SMALL and there(self._send.buffers[0])
            buffer = self._send.buffers[spot.array]
            if buffer not in self._shelves and not there(buffer):
                return False
            return size <= SMALL or self._part(spot).flags.c_contiguous
        except Exception:  # they are gone since: whoever loads them says so
            return False
        finally:
            self._lock.release()

    def bytes_of(self, chunk: Chunk) -> memoryview:
        """The bytes of a chunk, from any thread; blocks until the contents exist. A chunk may be asked for again."""
        size = self._sizes.get(chunk.piece)
        if size is None or chunk.offset < 0 or chunk.nbytes < 0 or chunk.offset + chunk.nbytes > size:
            raise ContentsMismatch(
                f"{chunk} is not part of transfer {self._send.transfer}, which sends {size} bytes of that piece"
            )
        end = chunk.offset + chunk.nbytes
        with self._lock:
            piece = self._pieces.get(chunk.piece)
            if piece is None:
                piece = self._pieces[chunk.piece] = self._cut(chunk.piece)
                if len(piece) != size:
                    raise ContentsMismatch(f"piece {chunk.piece} of transfer {self._send.transfer} has {len(piece)} "
                                           f"bytes, and {size} were announced")  # fmt: skip
            if end == size:
                del self._pieces[chunk.piece]
        return piece[chunk.offset : end]

    def array_of(self, piece: int) -> int:
        """Of which of its arrays this is a piece."""
        spot = (self._spots or {}).get(piece)
        return 0 if spot is None else spot.array

    def _spot(self, number: int) -> Spot | None:
        if not self._send.targets:
            return Spot(0, index_of(self._shards, number), (...,))
        if self._spots is None:
            assert self._host is not None, "clients send whole shards"
            self._spots = self._host.sent(self._send.sources, self._send.targets)
        return self._spots.get(number)

    def _cut(self, number: int) -> memoryview:
        if self.sparse:
            return _rows_of(self._shelf(0), self._shards, Shards(self._send.targets[0]), number)
        spot = self._spot(number)
        if spot is None:
            raise ContentsMismatch(
                f"transfer {self._send.transfer} has no piece {number}, unless it is a sparse exchange"
            )
        return raw_bytes(self._part(spot))

    def _part(self, spot: Spot) -> Array:
        shard = self._shelf(spot.array).get(spot.shard)
        if shard is None:
            here = "here" if self._host is None else f"on host {self._host.me}"
            text = f"transfer {self._send.transfer} sends shard {spot.shard}, which is not {here}"
            raise ContentsMismatch(text)
        found: Array = shard[spot.box]
        return found

    def _shelf(self, array: int) -> Shelf:
        buffer = self._send.buffers[array]
        found = self._shelves.get(buffer)
        if found is None:
            if buffer in self._lost:
                raise LookupError(self._lost[buffer])
            try:
                found = self._shelves[buffer] = dict(self._fetch(buffer))
            except Exception as error:
                self._lost[buffer] = str(error)
                raise
        return found


def _rows_of(shelf: Shelf, source: Shards, target: Shards, number: int) -> memoryview:
    ordinal, to = divmod(number, max(1, target.count))
    shard = shelf[index_of(source, ordinal)]
    return raw_bytes(shard[shard[:, 0] == to])


# --- receiving --------------------------------------------------------------------------------------------------


class _Incoming:
    """One piece: where it goes, and how many of its bytes have come."""

    __slots__ = ("array", "box", "came", "home", "lent", "nbytes", "staged", "view")

    def __init__(self, spot: Spot, home: Array, nbytes: int) -> None:
        self.array, self.home, self.box, self.nbytes = spot.array, home, spot.box, nbytes
        self.came = 0
        self.staged: bytearray | None = None
        self.view: memoryview | None = None
        self.lent: memoryview | None = None  # what comes next is received here
        part = home[spot.box]
        if part.flags.c_contiguous and part.size:
            self.view = raw_bytes(part)

    def room(self, offset: int, nbytes: int) -> memoryview | None:
        """Where these bytes belong, if they can be received there. What has come is not written to again."""
        if self.view is None or offset != self.came or offset + nbytes > len(self.view):
            return None
        self.lent = self.view[offset : offset + nbytes]
        return self.lent

    def take(self, offset: int, contents: bytes | memoryview) -> None:
        end = offset + len(contents)
        if contents is self.lent:
            self.lent = None
        elif self.view is not None:
            self.view[offset:end] = contents
        elif self.nbytes:
            if self.staged is None:
                self.staged = bytearray(self.nbytes)
            self.staged[offset:end] = contents
        self.came += len(contents)
        if self.came == self.nbytes and self.staged is not None:
            shape = self.home[self.box].shape
            self.home[self.box] = np.frombuffer(self.staged, self.home.dtype).reshape(shape)
            self.staged = None


class Sink:
    """Takes the contents of an OpenRecv. A filled shard is never written to again: it may be kept. `pieces`: the
    host's. `shelf`: where they go, of a client."""

    def __init__(self, recv: e.OpenRecv, pieces: HostPieces | None, shelf: Shelf | None = None) -> None:
        if not recv.targets:
            raise ContentsMismatch(
                f"transfer {recv.transfer} comes, but the layout of buffer {recv.buffers[0]} is not known"
            )
        self.buffers, self.layouts, self.sparse = recv.buffers, recv.targets, recv.sparse
        self._transfer, self._host = recv.transfer, pieces
        self._shards = shards_of(recv.targets[0])
        self._pieces: dict[tuple[int, int], _Incoming] = {}  # by (sender, piece)
        self._rows: dict[int, bytearray] = {}  # of a sparse exchange, by piece
        self._missing = [0] * len(recv.targets)  # bytes that are still to come, by array, as far as is known
        if recv.sparse:
            return
        self._shelves = [dict(shelf)] if shelf is not None else list(map(self._empty, recv.targets))
        planned = pieces.received(recv.sources, recv.targets) if pieces is not None and recv.sources else {}
        for sender, number, nbytes in recv.pieces:
            spot = planned[sender, number] if recv.sources else Spot(0, index_of(self._shards, number), (...,))
            self._pieces[sender, number] = _Incoming(spot, self._shelves[spot.array][spot.shard], nbytes)
            self._missing[spot.array] += nbytes

    def _here(self, layout: Layout) -> tuple[Index, ...]:
        assert self._host is not None, "a client says itself where contents go"
        return self._host.here(layout)

    def _empty(self, layout: Layout) -> dict[Index, Array]:
        return {index: empty(shards_of(layout).size, layout.dtype) for index in self._here(layout)}

    def room(self, chunk: Chunk) -> memoryview | None:
        """Where the contents of a chunk may be received, before `fill` is called with them."""
        piece = self._pieces.get((chunk.sender, chunk.piece))
        return None if piece is None else piece.room(chunk.offset, chunk.nbytes)

    def fill(self, chunk: Chunk, contents: bytes | memoryview) -> None:
        """Stores the contents of a chunk. Raises ContentsMismatch if they do not fit."""
        if len(contents) != chunk.nbytes:
            raise ContentsMismatch(
                f"transfer {self._transfer}: {len(contents)} bytes came as {chunk.nbytes} of piece {chunk.piece} "
                f"from {chunk.sender}"
            )
        if self.sparse:
            self._fill_rows(chunk, contents)
            return
        piece = self._pieces.get((chunk.sender, chunk.piece))
        if piece is None or chunk.offset < 0 or chunk.offset + chunk.nbytes > piece.nbytes:
            raise ContentsMismatch(
                f"transfer {self._transfer}: {chunk.nbytes} bytes at {chunk.offset} of piece {chunk.piece} from "
                f"{chunk.sender} have no place; {'no such piece' if piece is None else piece.nbytes}"
            )
        piece.take(chunk.offset, contents)
        self._missing[piece.array] -= len(contents)

    def _fill_rows(self, chunk: Chunk, contents: bytes | memoryview) -> None:
        piece = self._rows.setdefault(chunk.piece, bytearray())
        if chunk.offset != len(piece):
            raise ContentsMismatch(
                f"transfer {self._transfer}: piece {chunk.piece} goes on at {chunk.offset} after {len(piece)}"
            )
        piece += contents

    def shards(self, array: int) -> dict[Index, Array]:
        """The distinct shards of a buffer, when all has come. Raises Overflow if too many rows came."""
        if missing := self._missing[array]:
            raise ContentsMismatch(
                f"transfer {self._transfer} ended, but {missing} bytes are missing: the log of its sender says why"
            )
        if not self.sparse:
            return self._shelves[array]
        return {index: self._gather(index) for index in self._here(self.layouts[0])}

    def _gather(self, index: Index) -> Array:
        """The rows that came for this shard, in the order of their sources."""
        me, targets = self._shards.ordinal(index), max(1, self._shards.count)
        made = empty(self._shards.size, self.layouts[0].dtype)
        made[...] = 0
        made[:, 1] = -1
        numbers = sorted(number for number in self._rows if number % targets == me)
        rows = [np.frombuffer(self._rows[number], made.dtype).reshape(-1, made.shape[1]) for number in numbers]
        came = sum(map(len, rows))
        if came > len(made):
            raise Overflow(f"{came} rows go to shard {me}, and its capacity is {len(made)}; raise `capacity`")
        if rows:
            np.concatenate(rows, out=made[:came])
        return made


class ArraySink(Sink):
    """What a client receives: a whole array, each shard from a host that has it; or one of its shards (`only`)."""

    def __init__(self, recv: e.OpenRecv, only: int = ALL) -> None:
        (layout,) = recv.targets
        shards = shards_of(layout)
        if only == ALL:
            self._array = empty(layout.shape, layout.dtype)
            shelf = cut(layout, self._array)
        else:
            self._array = empty(shards.size, layout.dtype)
            shelf = {index_of(shards, only): self._array}
        super().__init__(recv, None, shelf)

    def array(self) -> Array:
        """The array, or the shard, when all of it has come."""
        self.shards(0)
        return self._array

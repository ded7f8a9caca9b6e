"""Frames: what a stream between two processes consists of. Bytes are put together and taken apart; nothing is sent.

    1 byte    kind: PACKET, ADDRESS, PASS; OPENING, ANSWER; REQUEST, REPLY
    4 bytes   size of the message     (little-endian, as is the next)
    4 bytes   size of the contents that follow the message: a chunk of a buffer, or none
    message, contents

A stream begins with `MAGIC`, an OPENING by its caller, and an ANSWER (`Opening`, `Answered`). Then either end sends
PACKETs of core's links with contents, and the controller ADDRESSes and PASSes ahead of the messages that need them; or
the caller sends one REQUEST and gets one REPLY; or, for callbacks, the host goes on to send REQUESTs and gets REPLYs
(`agent.callback_lines`). Bytes that are no frame, or announce one that is too large, raise
`Unreadable`, like core's own messages. Neighbours: `core.link.codec`, for packets; `backend.streams`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

import msgspec
import numpy as np

from core.link import Unreadable

MAGIC = b"SEAWAY-STREAM-1\n"  # a stream begins so; gRPC and TLS begin otherwise
MESSAGE = 32 << 20  # most bytes of a frame: a chunk, and room for more
GREETING = 16 << 10  # most bytes of an opening, and of its answer
ROOM = 64 << 10  # bytes that are received together, except contents
PACKET, ADDRESS, PASS, OPENING, ANSWER, REQUEST, REPLY = KINDS = range(1, 8)
HEAD = Struct("<BII")

Contents = bytes | memoryview
NO_CONTENTS = b""
RoomFor = Callable[[bytes, int], memoryview | None]


class TooLarge(Unreadable):
    """A frame that is larger than a stream may carry."""


class Address(msgspec.Struct, frozen=True, array_like=True):
    """The address of a name: "host/3", or the coordination service "world/0/2"."""

    name: str
    address: str


class Pass(msgspec.Struct, frozen=True, array_like=True):
    """A client's proof of its name ("client/5") to hosts."""

    name: str
    proof: str


class Opening(msgspec.Struct, frozen=True):
    """How a process introduces itself. Names of fields travel with them, so that any version can read it.

    name, proof: who calls ("host/3", "who/..."); asks: instead of packets, this one request, by its name."""

    version: str = ""
    token: str = ""
    name: str = ""
    proof: str = ""
    asks: str = ""


class Answered(msgspec.Struct, frozen=True):
    """The answer to an opening, and to a request that is refused. refused: "" or the kind of refusal, as in
    `auth.refusal_log`; text: why."""

    version: str = ""
    refused: str = ""
    text: str = ""


class StreamFrame(NamedTuple):
    kind: int
    message: bytes
    contents: Contents


_TYPES = {ADDRESS: Address, PASS: Pass, OPENING: Opening, ANSWER: Answered}
_encode = msgspec.msgpack.Encoder().encode
_decode = {kind: msgspec.msgpack.Decoder(struct).decode for kind, struct in _TYPES.items()}
_KIND_OF = {struct: kind for kind, struct in _TYPES.items()}


def head(kind: int, message: bytes, contents: Contents = NO_CONTENTS) -> bytes:
    """What precedes a frame's message."""
    return HEAD.pack(kind, len(message), len(contents))


def framed(said: Address | Pass | Opening | Answered) -> bytes:
    """The whole frame of such a message."""
    kind, message = _KIND_OF[type(said)], _encode(said)
    return head(kind, message) + message


def read(kind: int, message: bytes) -> Address | Pass | Opening | Answered:
    try:
        found: Address | Pass | Opening | Answered = _decode[kind](message)
        return found
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"this is no {_TYPES[kind].__name__}: {error}") from None


def nowhere(message: bytes, nbytes: int) -> memoryview | None:
    """It is not known where contents belong."""
    return None


class FrameReader:
    """Takes a stream apart. Bytes are received into `space()`, then counted with `came`; `next()` gives frames.

    Contents that do not fit into what is received together are received where `room_for` says that they belong, or into
    memory of their own: nothing copies them again.
    """

    __slots__ = ("_contents", "_filled", "_from", "_head", "_room", "_to", "_view", "most", "room_for")

    def __init__(self, most: int = MESSAGE) -> None:
        self.most = most  # bytes of a frame
        self.room_for: RoomFor = nowhere  # for the contents of a packet: its message, and how many bytes
        self._room = bytearray(ROOM)
        self._view = memoryview(self._room)
        self._from = self._to = 0  # what was received and not read
        self._head: tuple[int, bytes] | None = None  # the frame whose contents are being received
        self._contents = memoryview(b"")
        self._filled = 0

    @property
    def fills_contents(self) -> bool:
        """Whether the next bytes are contents, received where they stay."""
        return self._head is not None and self._filled < len(self._contents)

    def space(self) -> memoryview:
        if self._head is not None:
            return self._contents[self._filled :]
        if self._to == len(self._room):
            self._make_room()
        return self._view[self._to :]

    def came(self, count: int) -> None:
        if self._head is not None:
            self._filled += count
        else:
            self._to += count

    def next(self) -> StreamFrame | None:
        """The next frame, if all of it has come. Raises Unreadable."""
        if self._head is not None:
            return self._whole()
        start = self._from + HEAD.size
        if start > self._to:
            return None
        kind, size, more = HEAD.unpack_from(self._room, self._from)
        if kind not in KINDS:
            raise Unreadable(f"no frame begins with {kind}")
        if size + more > self.most:
            raise TooLarge(f"a frame of {size + more:,} bytes; {self.most:,} may come")
        end = start + size
        if end > self._to:
            return None
        message = bytes(self._view[start:end])
        if not more:
            self._advance(end)
            return StreamFrame(kind, message, NO_CONTENTS)
        here = min(more, self._to - end)
        room = self.room_for(message, more) if here < more and kind == PACKET else None
        self._contents = np.empty(more, np.uint8).data if room is None else room
        self._contents[:here] = self._view[end : end + here]
        self._filled = here
        self._head = kind, message
        self._advance(end + here)
        return self._whole()

    def _whole(self) -> StreamFrame | None:
        assert self._head is not None
        if self._filled < len(self._contents):
            return None
        (kind, message), contents = self._head, self._contents
        self._head, self._contents = None, memoryview(b"")
        return StreamFrame(kind, message, contents)

    def _advance(self, to: int) -> None:
        self._from = to
        if to == self._to:
            self._from = self._to = 0

    def _make_room(self) -> None:
        """Moves what is unread to the front; a message that fills all the room gets twice as much, as it comes."""
        left = self._to - self._from
        room = bytearray(max(ROOM, 2 * left))
        room[:left] = self._view[self._from : self._to]
        self._room, self._view = room, memoryview(room)
        self._from, self._to = 0, left

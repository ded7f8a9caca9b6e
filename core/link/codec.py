"""Messages as bytes: one tagged union of all that travels, encoded once for many, decoded with types checked.

What cannot be read raises `Unreadable`, whatever the bytes are: a driver turns it into the event `Malformed`,
and the machine closes that peer. Contents of buffers are no messages: the driver sends them beside a `Chunk`.
"""

from __future__ import annotations

import msgspec

from ..protocol import (
    Call,
    Calls,
    Data,
    Dismiss,
    Join,
    Leave,
    Note,
    Notes,
    Open,
    Ordered,
    Reports,
    Seat,
    Seated,
)
from .endpoint import Hello
from .link import Frame
from .packing import PackedOrdered, pack, unpack

_Plain = (
    Open | Call | Calls | Note | Notes  # client <-> controller
    | Seat | Dismiss | Join | Seated | Leave | Reports  # controller <-> host, host <-> host
    | Data  # host <-> host, client <-> host
)  # fmt: skip
Message = _Plain | Ordered  # as machines speak
_Written = _Plain | PackedOrdered  # as it travels

_NOT_READ = (msgspec.MsgspecError, ValueError, RecursionError)  # what msgspec raises at bytes
NOTHING = b"\xc0"  # msgpack's nil


class Unreadable(Exception):
    """These bytes are no message of ours; the text says what is wrong with them."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A link's frame as bytes: its numbers, and the message as it was encoded (for all links at once)."""

    seq: int
    ack: int
    again: bool
    message: msgspec.Raw  # NOTHING: a bare frame


_encoder = msgspec.msgpack.Encoder()
_message = msgspec.msgpack.Decoder(_Written)
_hello = msgspec.msgpack.Decoder(tuple[int, int])
_envelope = msgspec.msgpack.Decoder(Envelope)


def encode(message: msgspec.Struct) -> bytes:
    if isinstance(message, Ordered):
        message = pack(message)  # so that a plan's bytes do not follow the shape of its places
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> msgspec.Struct:
    try:
        found: msgspec.Struct = _message.decode(data)
        return unpack(found) if isinstance(found, PackedOrdered) else found
    except _NOT_READ as error:
        raise Unreadable(str(error)) from None


def encode_packet(packet: Frame | Hello, message: bytes | None = None) -> bytes:
    """What an endpoint says `Write` of. `message`: as for `encode_frame`."""
    return (
        _encoder.encode((packet.mine, packet.theirs))
        if isinstance(packet, Hello)
        else encode_frame(packet, message)
    )


def decode_packet(data: bytes | memoryview) -> Frame | Hello:
    """A Hello is two numbers, a frame four fields."""
    if bytes(data[:1]) != b"\x92":
        return decode_frame(data)
    try:
        return Hello(*_hello.decode(data))
    except _NOT_READ as error:
        raise Unreadable(str(error)) from None


def encode_frame(frame: Frame, message: bytes | None = None) -> bytes:
    """`message`: its message, encoded already, where it goes to several links."""
    if message is None:
        message = NOTHING if frame.message is None else encode(frame.message)
    return _encoder.encode(Envelope(frame.seq, frame.ack, frame.again, msgspec.Raw(message)))


def decode_frame(data: bytes | memoryview) -> Frame:
    try:
        envelope = _envelope.decode(data)
    except _NOT_READ as error:
        raise Unreadable(str(error)) from None
    raw = memoryview(envelope.message)
    return Frame(envelope.seq, envelope.ack, None if raw == NOTHING else decode(raw), envelope.again)

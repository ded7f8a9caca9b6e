"""Encodes messages as bytes and decodes them: one tagged union of all messages, with types checked on decoding.

A message that goes to many peers is encoded once. `decode` raises `Unreadable` for any bytes that are not a message.
A driver turns that into the event `Malformed`, and the machine closes the peer. Contents of buffers are not messages:
a driver sends them next to a `Chunk`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .. import protocol as p
from .endpoint import Hello
from .link import MARKS, Frame
from .packing import PackedOrdered, pack, unpack

_Plain = (
    p.Open | p.Call | p.Calls | p.Note | p.ClientMessages  # client <-> controller
    | p.Seat | p.Dismiss | p.Join | p.Seated | p.Leave | p.Reports  # controller <-> host, host <-> host
    | p.Data  # host <-> host, client <-> host
)  # fmt: skip
Message = _Plain | p.Ordered  # as machines send and receive it
_Packed = _Plain | PackedOrdered  # as it is encoded

_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)  # all that msgspec may raise for given bytes
NOTHING = b"\xc0"  # msgpack's nil


class Unreadable(Exception):
    """These bytes are not a Seaway message. The text says what is wrong with them."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame of a link as bytes: its numbers, and the message in it, which is encoded once for all links."""

    seq: int
    ack: int
    signs: Annotated[int, msgspec.Meta(ge=0, lt=2 * MARKS * MARKS)]  # again, mark and heard: in one byte, if not again
    message: msgspec.Raw  # NOTHING for a frame without a message


_encoder = msgspec.msgpack.Encoder()
_message = msgspec.msgpack.Decoder(_Packed)
_hello = msgspec.msgpack.Decoder(tuple[int, int])
_envelope = msgspec.msgpack.Decoder(Envelope)


def encode(message: msgspec.Struct) -> bytes:
    if isinstance(message, p.Ordered):
        message = pack(message)  # writes each place of a plan once
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> msgspec.Struct:
    try:
        found: msgspec.Struct = _message.decode(data)
        return unpack(found) if isinstance(found, PackedOrdered) else found
    except _DECODE_ERRORS as error:
        raise Unreadable(str(error)) from None


def encode_packet(packet: Frame | Hello, message: bytes | None = None) -> bytes:
    """Encode the packet of a `Write`. `message`: as for `encode_frame`."""
    return _encoder.encode((packet.mine, packet.theirs)) if isinstance(packet, Hello) else encode_frame(packet, message)


def decode_packet(data: bytes | memoryview) -> Frame | Hello:
    if bytes(data[:1]) != b"\x92":  # a Hello is an array of two, a frame an array of four
        return decode_frame(data)
    try:
        return Hello(*_hello.decode(data))
    except _DECODE_ERRORS as error:
        raise Unreadable(str(error)) from None


def encode_frame(frame: Frame, message: bytes | None = None) -> bytes:
    """Encode a frame. `message` is its message, if it is already encoded because it goes to several links."""
    if message is None:
        message = NOTHING if frame.message is None else encode(frame.message)
    signs = (frame.again * MARKS + frame.mark) * MARKS + frame.heard
    return _encoder.encode(Envelope(frame.seq, frame.ack, signs, msgspec.Raw(message)))


def decode_frame(data: bytes | memoryview) -> Frame:
    try:
        envelope = _envelope.decode(data)
    except _DECODE_ERRORS as error:
        raise Unreadable(str(error)) from None
    raw = memoryview(envelope.message)
    message = None if raw == NOTHING else decode(raw)
    signs, heard = divmod(envelope.signs, MARKS)
    again, mark = divmod(signs, MARKS)
    return Frame(envelope.seq, envelope.ack, message, bool(again), mark, heard)

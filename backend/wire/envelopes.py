"""The messages of a stream: packets of core's links with the contents of chunks, addresses, and passes.

A gRPC message is a msgpack array of parcels, so that many small parcels share its cost. Data that cannot be decoded,
or that is larger than a stream may carry, raises `Unreadable`, like core's own messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.link import Unreadable

MESSAGE = 32 << 20  # largest gRPC message in bytes: a chunk, and room for more


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One item of a stream's message."""


class Packet(Parcel, frozen=True, array_like=True, tag=1):
    packet: bytes
    contents: bytes = b""  # of the chunk that it carries


class Address(Parcel, frozen=True, array_like=True, tag=2):
    """The address of a name: "host/3", or the coordination service "world/0/2". Sent on a stream before what needs
    it."""

    name: str
    address: str


class Pass(Parcel, frozen=True, array_like=True, tag=3):
    """A client's proof of its name ("client/5") to hosts."""

    name: str
    proof: str


Any = Packet | Address | Pass
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def encode(parcels: Sequence[Any]) -> bytes:
    return _encode(parcels)


def decode(data: bytes) -> list[Any]:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None

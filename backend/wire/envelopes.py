"""What is put on a stream: packets of core's links with the contents of chunks, addresses, and passes.

A gRPC message is a msgpack array of parcels, so that many small ones share its cost. What is not readable as such, or
is larger than a stream may carry, is `Unreadable`, as core's own messages are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.link import Unreadable

MESSAGE = 32 << 20  # bytes of a gRPC message, at most: a chunk and then some


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a driver puts on a stream."""


class Packet(Parcel, frozen=True, array_like=True, tag=1):
    packet: bytes
    contents: bytes = b""  # of the chunk that it carries


class Address(Parcel, frozen=True, array_like=True, tag=2):
    """Where a name is: "host/3", or the coordination service "world/0/2". Ahead, on one stream, of what needs it."""

    name: str
    address: str


class Pass(Parcel, frozen=True, array_like=True, tag=3):
    """By which hosts will know the client that gets it. `name`: "client/5"."""

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

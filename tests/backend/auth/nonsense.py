"""What strangers say to a controller or an agent: random bytes, messages that are almost right, streams."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from backend.wire import Opening, framing, versions


def nonsense(chance: random.Random) -> bytes:
    """Random bytes, or a message with a few bytes changed."""
    if chance.random() < 0.5:
        return chance.randbytes(chance.randrange(200))
    said = (
        framing.framed(framing.Address("host/0", "127.0.0.1:1")),
        framing.framed(framing.Pass("client/1", "0" * 64)),
        packet(chance.randbytes(chance.randrange(60)), chance.randbytes(chance.randrange(9))),
        packet(b"\x92\x01\x00", b""),  # how a link begins
    )
    data = bytearray(b"".join(chance.choice(said) for _ in range(1, chance.randrange(2, 5))))
    for _ in range(chance.randrange(4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def packet(message: bytes, contents: bytes) -> bytes:
    return framing.head(framing.PACKET, message, contents) + message + contents


def opening(token: str, name: str, asks: str = "", proof: str = "") -> bytes:
    """How a stream begins, or a request on a connection of its own."""
    return framing.MAGIC + framing.framed(Opening(versions.mine(), token, name, proof, asks))


async def said_on_a_stream(address: str, begun: bytes, *said: bytes) -> bool:
    """Says this when the stream is open, and listens until the other end closes it; whether it was welcomed. Raises
    OSError."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(begun)
        head = framing.HEAD.unpack(await reader.readexactly(framing.HEAD.size))
        answer: Any = framing.read(head[0], await reader.readexactly(head[1]))
        if answer.refused:
            return False
        for each in said:
            writer.write(each)
        await writer.drain()
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
        return True
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
    finally:
        writer.close()

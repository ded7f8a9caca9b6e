"""Attacks on a controller by strangers and greedy clients, each in a process of its own. `strangers` measures the harm.

An attack says when it has begun, goes on until its standard input closes, and then says the number of answers by kind.
Attackers run at the lowest priority: real ones have machines of their own, and competition for this machine's cores is
not to be measured.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from backend.auth import OPTIONS, Access
from backend.node import SERVICE
from backend.wire import PAIRS, AboutReply, Opening, Permit, Recorded, SeenReply, Status, framing, versions

from ..frame.processes import say

HOSTS = 4  # of the cluster, of one device each
DURATION = "330us"  # of a step on all of them
AT_ONCE = 512  # calls under way of a flood ...
CONNECTIONS = 4  # ... over this many connections
STREAMS = 16
MOST = 1000  # runs under way of a greedy client
PUTS, PUT = 16, 1 << 20  # arrays under way, bytes of each
Metadata = Sequence[tuple[str, str]]
over = threading.Event()  # set when the standard input closes
answers: Counter[str] = Counter()


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


# --- floods of calls --------------------------------------------------------------------------------------------------

Next = Callable[[random.Random], tuple[str, bytes]]  # makes (method, request) of the next call


def named(request: msgspec.Struct) -> tuple[str, bytes]:
    return f"/{SERVICE}/{type(request).__name__}", msgspec.msgpack.encode(request)


def statuses(chance: random.Random) -> tuple[str, bytes]:
    return named(chance.choice((Status(), AboutReply("0"))))


def costly(chance: random.Random) -> tuple[str, bytes]:
    return named(chance.choice((Recorded(), SeenReply(), Permit(()), Status())))


def randoms(chance: random.Random) -> tuple[str, bytes]:
    return f"/{SERVICE}/{chance.choice(list(PAIRS)).__name__}", nonsense(chance)


async def flood(address: str, shown: Metadata, of: Next) -> None:
    """Keep AT_ONCE calls under way: each is followed by another as soon as it is answered."""
    options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CONNECTIONS)]

    async def one(number: int) -> None:
        chance, channel = random.Random(number), channels[number % CONNECTIONS]
        while not over.is_set():
            method, data = of(chance)
            try:
                await channel.unary_unary(method)(data, metadata=shown, timeout=30)
                answers["answered"] += 1
            except grpc.aio.AioRpcError as error:
                answers[error.code().name] += 1

    await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
    for channel in channels:
        await channel.close()


async def streams(address: str, shown: Metadata) -> None:
    """Send streams of nonsense, each followed by another when it is cut off."""
    token = dict(shown).get("authorization", "").removeprefix("Bearer ")

    async def one(number: int) -> None:
        chance = random.Random(number)
        while not over.is_set():
            name = f"who/{chance.randbytes(16).hex()}"
            try:
                async with asyncio.timeout(30):
                    welcomed = await said_on_a_stream(
                        address, opening(token, name), *(nonsense(chance) for _ in range(3))
                    )
                answers["ended" if welcomed else "refused"] += 1
            except TimeoutError:
                answers["silence"] += 1
            except OSError:
                answers["cut off"] += 1

    await asyncio.gather(*(one(number) for number in range(STREAMS)))


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


async def connections(address: str, shown: Metadata) -> None:
    """Open connections, send nothing or bytes that are neither HTTP/2 nor a stream, and close them."""
    host, _, port = address.rpartition(":")

    async def one(number: int) -> None:
        chance = random.Random(number)
        while not over.is_set():
            try:
                writer = (await asyncio.open_connection(host, int(port)))[1]
                writer.write(chance.randbytes(chance.randrange(100)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                answers["connected"] += 1
            except OSError:
                answers["refused"] += 1

    await asyncio.gather(*(one(number) for number in range(STREAMS)))


# --- clients that want everything -------------------------------------------------------------------------------------


def greedy(address: str, token_file: str) -> None:
    """A client that keeps as many calls under way as it is allowed."""
    import numpy as np

    import seaway as sw

    with sw.connect(address, token_file=token_file, client="greedy"):
        step, zero = sw.synthetic("greedy", duration=DURATION, devices=sw.slice(devices=HOSTS)), np.float32(0)
        step(zero).block_until_ready()
        going()
        under_way: deque[Any] = deque()
        while not over.is_set():
            under_way.append(step(zero))
            answers["runs"] += 1
            if len(under_way) >= MOST:
                under_way.popleft().block_until_ready()


def puts(address: str, token_file: str) -> None:
    """A client that puts large arrays and drops them."""
    import numpy as np

    import seaway as sw

    with sw.connect(address, token_file=token_file, client="greedy"):
        array, where = np.zeros(PUT, np.uint8), sw.slice(devices=1)
        sw.put(array, devices=where).block_until_ready()
        going()
        under_way: deque[Any] = deque()
        while not over.is_set():
            under_way.append(sw.put(array, devices=where))
            answers["puts"] += 1
            if len(under_way) >= PUTS:
                under_way.popleft().block_until_ready()


def spin(address: str, token_file: str) -> None:
    """Only use a core, as all attacks do: a baseline for their effect on this machine."""
    going()
    while not over.is_set():
        answers["turns"] += sum(range(1000)) > 0


# --- the process ------------------------------------------------------------------------------------------------------


def going() -> None:
    say(going=True)


Work = Callable[[str, Metadata], Awaitable[None]]


def in_loop(work: Work, right: bool = True) -> Callable[[str, str], None]:
    """`right`: use the cluster's token, not a wrong one."""

    def run(address: str, token_file: str) -> None:
        token = Path(token_file).read_text(encoding="utf-8").strip()
        shown = Access(token if right else "a guess").shown()
        going()
        asyncio.run(work(address, shown))  # type: ignore[arg-type]

    return run


def flooding(of: Next, right: bool = True) -> Callable[[str, str], None]:
    return in_loop(lambda address, shown: flood(address, shown, of), right)


ATTACKS: dict[str, Callable[[str, str], None]] = {
    "spin": spin,
    "calls": flooding(statuses),
    "wrong tokens": flooding(statuses, right=False),
    "costly calls": flooding(costly),
    "random bytes": flooding(randoms),
    "streams": in_loop(streams),
    "connections": in_loop(connections),
    "greedy": greedy,
    "puts": puts,
}


def attack(name: str, address: str, token_file: str) -> None:
    os.nice(19)

    def until_told() -> None:
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
        over.set()

    threading.Thread(target=until_told, daemon=True).start()
    begun = time.monotonic()
    ATTACKS[name](address, token_file)
    say(seconds=time.monotonic() - begun, answers=answers)

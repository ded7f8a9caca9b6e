"""The baseline of `transfers`: sends bytes in chunks over one raw gRPC stream between two processes.

The receiver answers each array with one byte, and then the sender sends the next. So this is the least time of a hop
with the same chunks and the same gRPC.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio

from backend.admin import Children
from backend.auth import Access
from backend.node import new_server

from ..frame import processes

NAME = "bench.Raw"
METHOD = "Take"
LAST = b"\x01"  # in front of an array's last chunk; MORE in front of others
MORE = b"\x00"


async def _take(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for chunk in requests:
        if chunk[:1] == LAST:
            yield b"k"


async def _serve() -> None:
    server = new_server()
    handler = grpc.stream_stream_rpc_method_handler(_take)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, {METHOD: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    processes.say(address=f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def _sent(address: str, sizes: Sequence[int], chunk: int, times: int) -> list[list[float]]:
    channel = Access().channel(address)
    call = channel.stream_stream(f"/{NAME}/{METHOD}")()
    found: list[list[float]] = []
    try:
        for size in sizes:
            content = memoryview(bytes(size))
            found.append([])
            for turn in range(times + 1):
                begun = time.perf_counter()
                for at in range(0, size, chunk):
                    await call.write((MORE if at + chunk < size else LAST) + content[at : at + chunk])
                await call.read()
                if turn:
                    found[-1].append(time.perf_counter() - begun)
    finally:
        call.cancel()
        await channel.close()
    return found


def receiver() -> None:
    asyncio.run(_serve())


def sender(address: str, sizes: list[int], chunk: int, times: int) -> list[list[float]]:
    return asyncio.run(_sent(address, sizes, chunk, times))


def hops(sizes: Sequence[int], chunk: int, times: int) -> dict[int, list[float]]:
    """Seconds of each hop, by size in bytes, without the first of each size."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            address = processes.heard(processes.start(children, receiver))["address"]
            sent = processes.start(children, sender, address, list(sizes), chunk, times)
            return dict(zip(sizes, processes.heard(sent), strict=True))
        finally:
            children.end_all()

"""The baseline of `transfers`: sends bytes in chunks over one raw gRPC stream between two processes.

`python -m experiments.bench.real.stream` is the receiver; with `--to ADDRESS` it is the sender. The receiver answers
each array with one byte, and then the sender sends the next. So this is the least time of a hop with the same chunks
and the same gRPC.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio

from backend.admin import Child, Children, end_with_parent
from backend.auth import Access
from backend.node import new_server

MODULE = "experiments.bench.real.stream"
NAME = "bench.Raw"
METHOD = "Take"
LAST = b"\x01"  # in front of an array's last chunk; MORE in front of others
MORE = b"\x00"


async def _take(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for chunk in requests:
        if chunk[:1] == LAST:
            yield b"k"


async def serve() -> None:
    server = new_server()
    handler = grpc.stream_stream_rpc_method_handler(_take)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, {METHOD: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


async def _sent(address: str, sizes: list[int], chunk: int, times: int) -> dict[int, list[float]]:
    channel = Access().channel(address)
    call = channel.stream_stream(f"/{NAME}/{METHOD}")()
    found: dict[int, list[float]] = {}
    try:
        for size in sizes:
            content = memoryview(bytes(size))
            found[size] = []
            for turn in range(times + 1):
                begun = time.perf_counter()
                for at in range(0, size, chunk):
                    await call.write((MORE if at + chunk < size else LAST) + content[at : at + chunk])
                await call.read()
                if turn:
                    found[size].append(time.perf_counter() - begun)
    finally:
        call.cancel()
        await channel.close()
    return found


def hops(sizes: Sequence[int], chunk: int, times: int) -> dict[int, list[float]]:
    """Seconds of each hop, by size in bytes, without the first of each size."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            address = _said(children.start("taker", MODULE, [], stdout=subprocess.PIPE))
            words = ["--to", address, str(chunk), str(times), *map(str, sizes)]
            found = json.loads(_said(children.start("sender", MODULE, words, stdout=subprocess.PIPE)))
            return {int(size): each for size, each in found.items()}
        finally:
            children.end_all()


def _said(child: Child) -> str:
    assert child.process.stdout is not None
    line = child.process.stdout.readline().decode().strip()
    if not line:
        raise RuntimeError(f"the {child.name} of the raw stream ended: {child.tail()}")
    return line


def main(arguments: Sequence[str]) -> None:
    end_with_parent()
    if arguments[:1] == ["--to"]:
        chunk, times, *sizes = map(int, arguments[2:])
        print(json.dumps(asyncio.run(_sent(arguments[1], sizes, chunk, times))), flush=True)
    else:
        asyncio.run(serve())


if __name__ == "__main__":
    main(sys.argv[1:])

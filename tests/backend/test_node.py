"""A node's connections end when they are to, whatever gRPC does meanwhile: nobody stays connected who is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from backend.node import GOODBYE, Node

from .cluster import cluster, until

HOST = 0


class Stuck:
    """A stream on which nothing comes, and nothing can be written. It takes a moment to give up."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.giving_up = asyncio.Event()

    async def read(self) -> bytes:
        await self.closed.wait()
        raise ConnectionError("the peer is gone")

    async def write(self, data: bytes) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.giving_up.set()
            await asyncio.sleep(0.2)
            raise


def talk(node: Node, stream: Stuck) -> asyncio.Task[None]:
    return asyncio.ensure_future(node._talk(HOST, stream.read, stream.write))


def test_a_connection_whose_end_is_cut_short_again_is_over_all_the_same(tmp_path: Path) -> None:
    """The reader fails, and while that is put in order gRPC cancels the call: both happen when a peer is killed."""

    async def drive() -> None:
        async with cluster(tmp_path, agents=False) as found:
            node, stream = found.server.node, Stuck()
            call = talk(node, stream)
            await until(lambda: node.connected(HOST))
            await asyncio.sleep(0.05)  # the first words are being written
            stream.closed.set()
            await asyncio.wait_for(stream.giving_up.wait(), 5)
            call.cancel()
            await asyncio.wait([call])
            assert not node.connected(HOST)

    asyncio.run(drive())


def test_who_is_hung_up_on_and_reads_nothing_is_left_soon(tmp_path: Path) -> None:
    async def drive() -> None:
        async with cluster(tmp_path, agents=False) as found:
            node = found.server.node
            call = talk(node, Stuck())
            await until(lambda: node.connected(HOST))
            node._hang(HOST)
            assert not node.connected(HOST), "another one of this name may come now"
            async with asyncio.timeout(GOODBYE + 10):
                await asyncio.wait([call])

    asyncio.run(drive())

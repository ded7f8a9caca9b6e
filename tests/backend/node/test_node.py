"""A node's connections end when they should, whatever gRPC does meanwhile, and no ended connection counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from backend.node.node import GOODBYE, STREAM, NetworkNode
from backend.node.send_queue import SendQueue
from backend.wire.envelopes import Address
from core.protocol.peers import CONTROLLER
from tests.backend.cluster import cluster, wait_until

HOST = 0


class Stuck:
    """A stream on which no message arrives and none can be written. Cancelling it takes a moment."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.writing, self.giving_up = asyncio.Event(), asyncio.Event()

    async def read(self) -> bytes:
        await self.closed.wait()
        raise ConnectionError("the peer is gone")

    async def write(self, data: bytes) -> None:
        self.writing.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.giving_up.set()
            await asyncio.sleep(0.2)
            raise


def talk(node: NetworkNode, stream: Stuck) -> asyncio.Task[None]:
    return asyncio.ensure_future(node._talk(HOST, stream.read, stream.write, 0, SendQueue(node.loop)))


def test_a_connection_ends_even_if_its_end_is_interrupted(tmp_path: Path) -> None:
    """The reader fails, and gRPC cancels the call during the clean-up. Both happen when a peer is killed."""

    async def drive() -> None:
        async with cluster(tmp_path, agents=False) as found:
            node, stream = found.server.node, Stuck()
            call = talk(node, stream)
            await wait_until(lambda: node.connected(HOST))
            await asyncio.wait_for(stream.writing.wait(), 20)
            stream.closed.set()
            await asyncio.wait_for(stream.giving_up.wait(), 20)
            call.cancel()
            await asyncio.wait([call])
            assert not node.connected(HOST)

    asyncio.run(drive())


def test_a_peer_that_does_not_read_the_end_of_its_connection_is_left_soon(tmp_path: Path) -> None:
    async def drive() -> None:
        async with cluster(tmp_path, agents=False) as found:
            node = found.server.node
            call = talk(node, Stuck())
            await wait_until(lambda: node.connected(HOST))
            node._hang(HOST)
            assert not node.connected(HOST), "another connection of this name may come now"
            async with asyncio.timeout(GOODBYE + 10):
                await asyncio.wait([call])

    asyncio.run(drive())


def test_when_two_hosts_dial_each_other_the_stream_of_the_first_one_is_kept(tmp_path: Path) -> None:
    """Otherwise each host would end the other's stream by opening its own, for ever."""

    async def drive() -> None:
        async with cluster(tmp_path) as found:
            first, second = (found.agents[host].node for host in (0, 1))
            for _ in range(5):
                first._want(1)
                second._want(0)
                async with asyncio.timeout(20):
                    await settled(first, second)
                # there is exactly one stream
                await wait_until(lambda: (1 in first._dialled) != (0 in second._dialled))
                for node, peer in ((first, 1), (second, 0)):
                    node._hang(peer)
                await wait_until(lambda: 1 not in first._outboxes and 0 not in second._outboxes)

            first._want(1)
            await wait_until(lambda: first.connected(1) and second.connected(0))
            with pytest.raises(grpc.aio.AioRpcError, match="has a stream from here"):
                await stream(second, 0, found.agents[0].address).read()
            assert first.connected(1)

    asyncio.run(drive())


async def settled(first: NetworkNode, second: NetworkNode) -> None:
    """Wait until both are connected and stay so for a while. If they end each other's streams, that never happens."""
    kept = None
    while None in (kept or (None,)) or kept != (first._outboxes.get(1), second._outboxes.get(0)):
        kept = first._outboxes.get(1), second._outboxes.get(0)
        await asyncio.sleep(0.5)


def test_a_link_to_a_host_that_has_restarted_elsewhere_ends_at_once(tmp_path: Path) -> None:
    async def drive() -> None:
        async with cluster(tmp_path) as found:
            node = found.agents[0].node
            node._want(1)
            await wait_until(lambda: node.connected(1) and node.endpoint.linked(1))
            node._take(CONTROLLER, Address("host/1", node.directory["host/1"]))
            assert node.endpoint.linked(1), "the same news again changes nothing"
            node._take(CONTROLLER, Address("host/1", "127.0.0.1:1"))
            assert not node.endpoint.linked(1)
            await wait_until(lambda: not node.connected(1))

    asyncio.run(drive())


def stream(node: NetworkNode, peer: int, address: str) -> Any:
    """Open a stream as a node does."""
    name, proof = node.names.mine(peer)
    shown = (("name", name), ("proof", proof), *node.access.shown())
    return node._channel(address).stream_stream(STREAM)(metadata=shown)

"""A node's connections end when they should, no ended connection counts, and a turn writes once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.auth.access import Access
from backend.node import node as node_module
from backend.node.node import NetworkNode
from backend.streams import Connection, StreamRefused, dial
from backend.wire.framing import Address
from core.link import Frame
from core.link.codec import encode_packet
from core.protocol.dataplane import Chunk
from core.protocol.messages import Release
from core.protocol.peers import CONTROLLER, client
from tests.backend.cluster import cluster, wait_until
from tests.backend.test_faults import register, runs

HOST = 0


async def test_a_peer_that_does_not_read_the_end_of_its_connection_is_left_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is alive, and never closes its end."""
    monkeypatch.setattr(node_module, "GOODBYE", 0.1)
    async with cluster(tmp_path, agents=False) as found:
        node, name = found.server.node, "who/" + "7" * 32
        stranger = await dial(found.server.address, Access(), name, "")
        peer = node.names.peer_of(name, "")
        assert peer is not None
        await wait_until(lambda: node.connected(peer))
        ended = node._outboxes[peer]
        node._hang(peer)
        assert not node.connected(peer), "another connection of this name may come now"
        async with asyncio.timeout(20):
            await ended.over.wait()
        stranger.close()


async def test_a_new_connection_of_a_peer_ends_the_one_before_and_only_that(tmp_path: Path) -> None:
    async with cluster(tmp_path, agents=False) as found:
        node, name = found.server.node, "who/" + "7" * 32
        peer = node.names.peer_of(name, "")
        assert peer is not None
        kept = [await dial(found.server.address, Access(), name, "")]
        for _ in range(3):
            await wait_until(lambda: node.connected(peer))
            before = node._outboxes[peer]
            kept.append(await dial(found.server.address, Access(), name, ""))
            async with asyncio.timeout(20):
                await before.over.wait()
            assert node.connected(peer), "the end of the old one is not the end of the new one"
        for each in kept:
            each.close()
        await wait_until(lambda: not node.connected(peer))


async def test_what_one_turn_says_to_a_peer_is_written_at_once(tmp_path: Path) -> None:
    """A turn of the machine that has many messages for one peer makes one call of the system."""
    async with cluster(tmp_path) as found:
        user = found.user()
        program = register(user, 1)
        await runs(user, program)
        node = user.remote.node
        wrote: list[int] = []
        connection = node._outboxes[CONTROLLER]
        assert isinstance(connection, Connection)
        connection.wrote = lambda number, nbytes: wrote.append(number)
        node.turn(lambda: [register(user, 2, cost=cost) for cost in (1, 2, 3)])
        assert wrote[0] == 3, "three messages in one call of the system"


async def test_when_two_hosts_dial_each_other_the_stream_of_the_first_one_is_kept(tmp_path: Path) -> None:
    """Otherwise each host would end the other's stream by opening its own, for ever."""
    async with cluster(tmp_path) as found:
        first, second = (found.agents[host].node for host in (0, 1))
        for _ in range(3):
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
        with pytest.raises(StreamRefused, match="has a stream from here"):
            await dial(found.agents[0].address, second.access, *second.names.mine(0))
        assert first.connected(1)


async def settled(first: NetworkNode, second: NetworkNode) -> None:
    """Wait until both are connected and stay so for a while. If they end each other's streams, that never happens."""
    kept = None
    while None in (kept or (None,)) or kept != (first._outboxes.get(1), second._outboxes.get(0)):
        kept = first._outboxes.get(1), second._outboxes.get(0)
        await asyncio.sleep(0.2)


async def test_a_link_to_a_host_that_has_restarted_elsewhere_ends_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        node = found.agents[0].node
        node._want(1)
        await wait_until(lambda: node.connected(1) and node.endpoint.linked(1))
        node._hear(CONTROLLER, Address("host/1", node.directory["host/1"]))
        assert node.endpoint.linked(1), "the same news again changes nothing"
        node._hear(CONTROLLER, Address("host/1", "127.0.0.1:1"))
        assert not node.endpoint.linked(1)
        await wait_until(lambda: not node.connected(1))


async def test_contents_are_received_where_they_belong_only_from_their_own_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a chunk says of itself is checked before bytes are written for it; the rest is refused as it always was."""
    async with cluster(tmp_path, agents=False) as found:
        node, room, chunk = found.server.node, memoryview(bytearray(8)), Chunk(1, HOST, 5, 0, 0, 8)
        monkeypatch.setattr(node, "_room", lambda asked: room if asked == chunk else None)

        def placed(peer: int, message: object, nbytes: int = 8) -> memoryview | None:
            return node._room_for(peer, encode_packet(Frame(1, 0, message)), nbytes)  # type: ignore[arg-type]

        assert placed(HOST, chunk) is room
        assert placed(HOST + 1, chunk) is None
        assert placed(client(3), chunk) is None
        assert placed(HOST, chunk, 9) is None
        assert placed(HOST, Release((1,))) is None
        assert node._room_for(HOST, b"\xff nonsense", 8) is None

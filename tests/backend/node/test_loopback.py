"""Connections between nodes in one loop: no bytes, with the same meaning."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from pathlib import Path

from backend.node.loopback import LoopbackLane
from core.protocol.peers import CONTROLLER
from tests.backend.cluster import cluster, wait_until


async def test_messages_put_on_a_lane_by_any_thread_arrive_once_and_in_order() -> None:
    came: list[int] = []

    def take(parcel: int) -> bool:
        came.append(parcel)
        return True

    lane = LoopbackLane(asyncio.get_running_loop(), take)
    lane.put(-1)
    assert came == []  # one turn of the loop later, since the sender may hold a lock
    thread = threading.Thread(target=lambda: deque(map(lane.put, range(5000)), maxlen=0))
    thread.start()
    await wait_until(lambda: len(came) == 5001)
    thread.join()
    assert came == list(range(-1, 5000))
    lane.put(7)
    lane.put(None)
    lane.put(8)
    async with asyncio.timeout(5):
        await lane.over.wait()
    assert came[-1] == 7


async def test_a_lane_without_its_other_end_is_closed() -> None:
    lane = LoopbackLane(asyncio.get_running_loop(), lambda parcel: False)
    lane.put(1)
    async with asyncio.timeout(5):
        await lane.over.wait()


async def test_a_client_in_the_controllers_loop_reconnects_when_the_connection_is_cut(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        await user.stop()  # the first user needs a stream; the next one does not
        near = found.user()
        near.remote.node.near["controller"] = found.server.node
        await wait_until(lambda: near.remote.client.state == "open")
        outbox = near.remote.node._outboxes[CONTROLLER]
        assert isinstance(outbox, LoopbackLane)
        outbox.over.set()
        await wait_until(lambda: near.remote.node._outboxes.get(CONTROLLER) not in (None, outbox))
        assert near.remote.client.state == "open"
        assert near.failures == []
        await found.server.node.stop()
        await wait_until(lambda: not near.remote.node.connected(CONTROLLER))

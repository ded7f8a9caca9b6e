"""Connections between nodes in one loop, and ends that are reported together: fewer messages with the same meaning."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.agent.agent import BUSY, EndReports
from backend.node.loopback import LoopbackLane
from core.protocol import effects as e
from core.protocol.peers import CONTROLLER
from tests.backend.cluster import cluster, wait_until


def test_messages_put_on_a_lane_by_any_thread_arrive_once_and_in_order() -> None:
    async def drive() -> None:
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

    asyncio.run(drive())


def test_a_lane_without_its_other_end_is_closed() -> None:
    async def drive() -> None:
        lane = LoopbackLane(asyncio.get_running_loop(), lambda parcel: False)
        lane.put(1)
        async with asyncio.timeout(5):
            await lane.over.wait()

    asyncio.run(drive())


def test_a_client_in_the_controllers_loop_reconnects_when_the_connection_is_cut(
    tmp_path: Path,
) -> None:
    async def drive() -> None:
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

    asyncio.run(drive())


class RecordingNode:
    """A node as far as `EndReports` needs it."""

    def __init__(self) -> None:
        self.loop, self.stopped = asyncio.get_running_loop(), False
        self.lock = threading.RLock()
        self.heard: list[e.Event] = []

    def feed(self, event: e.Event) -> None:
        self.heard.append(event)

    def turn(self, act: Callable[[], Any]) -> None:
        act()

    def soon(self, act: Callable[[], Any]) -> None:
        self.loop.call_soon_threadsafe(act)


def test_ends_within_a_moment_are_reported_together_and_events_keep_their_order() -> None:
    async def drive() -> None:
        node: Any = RecordingNode()
        ends = EndReports(node)
        for event in (e.Finished(1), e.Finished(2), e.Reformed(0), e.Finished(3)):
            ends.post(event)
        await wait_until(lambda: len(node.heard) == 3)
        two = e.FinishedTogether((e.Finished(1), e.Finished(2)))
        assert node.heard == [two, e.Reformed(0), e.Finished(3)]
        ends.post(e.Finished(4))
        await wait_until(lambda: len(node.heard) == 4)
        assert node.heard[-1] == e.Finished(4)

    asyncio.run(drive())


def test_a_host_with_much_under_way_makes_fewer_reports_than_gangs_end_and_one_with_little_makes_each() -> (
    None
):
    async def reports(under_way: int, ends: int) -> int:
        node: Any = RecordingNode()
        found = EndReports(node)
        for seq in range(under_way):
            found.launched(seq)
        for seq in range(ends):
            found.post(e.Finished(seq))
            for _ in range(3):
                await asyncio.sleep(0)
        await wait_until(lambda: sum(len(getattr(each, "ends", (0,))) for each in node.heard) == ends)
        return len(node.heard)

    async def drive() -> None:
        assert await reports(64, 40) < 40
        assert await reports(1, 1) == 1
        assert await reports(2, 2) == 2

    asyncio.run(drive())


def test_ends_that_the_enqueueing_thread_sees_are_told_by_it_and_those_of_others_in_the_loop() -> None:
    async def drive() -> None:
        node: Any = RecordingNode()
        ends = EndReports(node)
        ends.thread = threading.get_ident()
        ends.post(e.Finished(1))
        await asyncio.sleep(0.01)
        assert node.heard == []
        assert ends.tell_due() is None
        assert node.heard == [e.Finished(1)]
        ends.launched(3)
        ends.launched(4)
        ends.post(e.Finished(2))
        due = ends.tell_due()
        assert due is not None
        assert 0 < due < 0.01
        await asyncio.to_thread(ends.post, e.Reformed(0))
        await wait_until(lambda: len(node.heard) == 3)
        assert node.heard[1:] == [e.Finished(2), e.Reformed(0)]
        assert ends.tell_due() is None

    asyncio.run(drive())


def test_the_enqueueing_thread_does_not_wait_for_a_node_that_somebody_else_has() -> None:
    async def drive() -> None:
        node: Any = RecordingNode()
        ends = EndReports(node)
        ends.thread = threading.get_ident()
        ends.post(e.Finished(1))
        has, let_go = threading.Event(), threading.Event()

        def have() -> None:
            with node.lock:
                has.set()
                let_go.wait(20)

        other = threading.Thread(target=have)
        other.start()
        has.wait(20)
        assert ends.tell_due() == BUSY
        assert node.heard == []
        let_go.set()
        other.join()
        assert ends.tell_due() is None
        assert node.heard == [e.Finished(1)]

    asyncio.run(drive())

"""Ends of gangs are reported together, in order, by the thread that sees them or in the loop: fewer messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from backend.agent.end_reports import BUSY, EndReports
from core.protocol import effects as e
from tests.backend.cluster import wait_until


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


def told_here() -> tuple[Any, EndReports]:
    """A node, and ends that this thread tells it, as the one that enqueues does."""
    node: Any = RecordingNode()
    ends = EndReports(node)
    ends.thread = threading.get_ident()
    return node, ends


async def test_ends_within_a_moment_are_reported_together_and_events_keep_their_order() -> None:
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


async def test_a_host_with_much_under_way_makes_fewer_reports_than_gangs_end_and_one_with_little_makes_each() -> None:
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

    assert await reports(64, 40) < 40
    assert await reports(1, 1) == 1
    assert await reports(2, 2) == 2


async def test_ends_that_the_enqueueing_thread_sees_are_told_by_it_and_those_of_others_in_the_loop() -> None:
    node, ends = told_here()
    ends.post(e.Finished(1))
    await asyncio.sleep(0.01)
    assert node.heard == []
    assert ends.tell_due() is None
    assert node.heard == [e.Finished(1)]
    for seq in (2, 3, 4):
        ends.launched(seq)
    ends.post(e.Finished(2))
    due = ends.tell_due()
    assert due is not None
    assert 0 < due < 0.01
    await asyncio.to_thread(ends.post, e.Reformed(0))
    await wait_until(lambda: len(node.heard) == 3)
    assert node.heard[1:] == [e.Finished(2), e.Reformed(0)]
    assert ends.tell_due() is None


async def test_the_enqueueing_thread_does_not_wait_for_a_node_that_somebody_else_has() -> None:
    node, ends = told_here()
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

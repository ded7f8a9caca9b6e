"""Messages between nodes of one process are handed over as objects, in the thread that says them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from backend.node.near_lane import NearLane
from core.protocol.peers import CONTROLLER
from tests.backend.cluster import chain, cluster, wait_until


async def test_messages_put_on_a_lane_by_any_thread_arrive_once_and_in_order() -> None:
    came: list[int] = []

    def take(parcel: int) -> bool:
        came.append(parcel)
        return True

    lane = NearLane(asyncio.get_running_loop(), take)
    lane.put(0)
    assert came == []  # the sender may hold a lock

    def say(numbers: range) -> None:
        for each in numbers:
            lane.put(each)
            lane.flush()

    threads = [threading.Thread(target=say, args=(range(first, 5001, 2),)) for first in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in came if each % 2] == list(range(1, 5001, 2))
    assert [each for each in came if not each % 2] == list(range(0, 5001, 2))
    lane.put(7)
    lane.put(None)
    lane.put(8)
    lane.flush()
    async with asyncio.timeout(5):
        await lane.over.wait()
    assert came[-1] == 7


async def test_what_is_patient_is_left_to_the_loop_and_what_is_not_takes_it_along() -> None:
    came: list[tuple[int, int]] = []

    def take(number: int) -> bool:
        came.append((number, threading.get_ident()))
        return True

    lane = NearLane(asyncio.get_running_loop(), take)

    def say(number: int, patient: bool) -> int:
        lane.patient = patient
        lane.put(number)
        lane.flush()
        return threading.get_ident()

    await asyncio.to_thread(say, 1, True)
    await wait_until(lambda: came)
    await asyncio.to_thread(lane.put, 2)
    other = await asyncio.to_thread(say, 3, False)
    assert came == [(1, threading.get_ident()), (2, other), (3, other)]


async def test_a_lane_without_its_other_end_is_closed() -> None:
    lane = NearLane(asyncio.get_running_loop(), lambda parcel: False)
    lane.put(1)
    lane.flush()
    async with asyncio.timeout(5):
        await lane.over.wait()


async def test_a_client_in_the_controllers_loop_reconnects_when_the_lane_is_cut_and_takes_turns(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        user = found.user()
        await user.stop()  # the first user needs a stream; the next one does not
        near = found.user()
        near.remote.node.near["controller"] = found.server.node
        await wait_until(lambda: near.remote.client.state == "open")
        outbox = near.remote.node._outboxes[CONTROLLER]
        assert isinstance(outbox, NearLane)
        outbox.over.set()
        await wait_until(lambda: near.remote.node._outboxes.get(CONTROLLER) not in (None, outbox))
        assert near.remote.client.state == "open"
        assert near.failures == []
        program = near.call(lambda client, now: client.register(chain(1, 4, cost=10**9), now))
        patient = []
        for _ in range(2):
            _, (result,) = near.submit(program, bytes(32))
            patient.append(near.remote.node._outboxes[CONTROLLER].patient)  # type: ignore[union-attr]
        near.call(lambda client, now: client.get(result, now))
        patient.append(near.remote.node._outboxes[CONTROLLER].patient)  # type: ignore[union-attr]
        assert patient == [False, True, False]  # nothing is under way; one more run is; somebody waits
        await found.server.node.stop()
        await wait_until(lambda: not near.remote.node.connected(CONTROLLER))

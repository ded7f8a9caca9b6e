"""Calls at given times, made by one thread that all users in a process share."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

from backend.devices.timed import Alarms

PATIENCE = 10.0


def test_calls_are_made_in_the_order_of_their_times_and_never_too_soon() -> None:
    alarms, came = Alarms(), SimpleQueue[tuple[int, int]]()
    alarms.enter()
    begun = time.monotonic_ns()
    for after in (30_000_000, 10_000_000, 20_000_000, 0, 10_000_000):
        alarms.at(begun + after, lambda after=after: came.put((after, time.monotonic_ns())))  # type: ignore[misc]
    found = [came.get(timeout=PATIENCE) for _ in range(5)]
    alarms.leave()
    assert [after for after, _ in found] == [0, 10_000_000, 10_000_000, 20_000_000, 30_000_000]
    assert all(at >= begun + after for after, at in found)


def test_a_call_that_is_due_sooner_than_the_one_waited_for_is_not_delayed() -> None:
    alarms, came = Alarms(), SimpleQueue[str]()
    alarms.enter()
    now = time.monotonic_ns()
    alarms.at(now + 3600 * 10**9, lambda: came.put("in an hour"))
    alarms.at(now + 1_000_000, lambda: came.put("soon"))
    assert came.get(timeout=PATIENCE) == "soon"
    alarms.leave()


def test_the_thread_ends_with_its_last_user_and_starts_again_for_the_next() -> None:
    alarms, came, others = Alarms(), SimpleQueue[int](), set(threading.enumerate())
    alarms.enter()
    alarms.enter()
    (first,) = (each for each in threading.enumerate() if each.name == "alarms" and each not in others)
    alarms.leave()
    alarms.at(time.monotonic_ns(), lambda: came.put(1))
    assert came.get(timeout=PATIENCE) == 1
    alarms.leave()
    first.join(PATIENCE)
    assert not first.is_alive()
    alarms.enter()
    alarms.at(time.monotonic_ns(), lambda: came.put(2))
    assert came.get(timeout=PATIENCE) == 2
    alarms.leave()

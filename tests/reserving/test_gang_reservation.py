"""Gang reservation: devices drain for an urgent gang, and are kept for its client's next one."""

from __future__ import annotations

from typing import Any

import numpy as np

import seaway as sw
from tests.core.schedule.timed_world import Kept, TimedWorld
from tests.reserving.gang_reservation import GangReservation

LEFT, RIGHT, ALL = range(4), range(4, 8), range(8)


def test_devices_drain_for_an_urgent_gang() -> None:
    world = TimedWorld(GangReservation(grace=0))
    world.comes(0, 1, LEFT, 10)
    urgent, other = world.comes(1, 2, ALL, 5, priority=1), world.comes(2, 3, RIGHT, 1)
    world.run()
    assert (urgent.started, other.started) == (10, 15)


def test_devices_are_kept_for_the_next_gang_of_its_client() -> None:
    world = TimedWorld(GangReservation(grace=20))
    world.comes(0, 1, LEFT, 10, priority=1)
    other = world.comes(5, 2, ALL, 10)
    again = world.comes(25, 1, LEFT, 10, priority=1)
    world.run()
    assert (again.started, other.started) == (25, 55)
    assert world.kept == [Kept(10, 25, frozenset(ALL)), Kept(35, 55, frozenset(ALL))]


def test_a_client_that_does_not_come_back_has_kept_them_for_the_grace() -> None:
    world = TimedWorld(GangReservation(grace=20))
    world.comes(0, 1, LEFT, 10, priority=1)
    other = world.comes(5, 2, ALL, 10)
    world.run()
    assert other.started == 30


def test_nothing_is_wrong_with_it() -> None:
    sw.policies.check(GangReservation, worlds=16, may_starve=True)


def test_the_trace_of_a_session_shows_what_was_reserved_and_for_whom() -> None:
    """An urgent client thinks 2 ms between steps of 4 ms; another one would fill every gap."""
    urgent = sw.synthetic("urgent", devices=8, duration="4ms")
    other = sw.synthetic("other", devices=8, duration="10ms")

    def client(step: Any, calls: int, think: float) -> None:
        for _ in range(calls):
            step(np.float32(0)).block_until_ready()
            sw.sleep(f"{think}s")

    with sw.simulate("B", hosts=1, policy=lambda: GangReservation(grace=5_000_000), config={"window": 1}) as s:
        s.spawn(client, urgent, 20, 0.002, name="urgent", priority=1)
        s.spawn(client, other, 5, 0.0, name="other")
    table: Any = s.trace.utilization(by="client").set_index("client")
    assert table.loc["urgent", "reserved_fraction"] > 0.1
    assert table.loc["other", "reserved_fraction"] == 0
    assert "reserved" in s.trace.summary()
    kept = s.trace.reservations()
    assert len(kept) > 5
    assert kept["duration_us"].max() <= 5_000

"""Least attained service: a newcomer catches up first, then clients take turns; levels keep the order of arrival."""

from __future__ import annotations

import seaway as sw
from examples.policies.least_attained import LeastAttained
from tests.core.schedule.timed_world import TimedWorld

ALL = range(4)


def clients(world: TimedWorld) -> list[int]:
    return [gang.ticket.client for gang in world.run().order]


def test_a_newcomer_is_served_until_it_has_had_as_much_as_the_others_and_then_they_take_turns() -> None:
    world = TimedWorld(LeastAttained(quantum=0))
    for _ in range(12):
        world.comes(0, 1, ALL, 10)
    for _ in range(8):
        world.comes(45, 2, ALL, 10)
    assert clients(world) == [1] * 5 + [2] * 5 + [1, 2] * 3 + [1] * 4


def test_a_short_client_ends_after_its_own_service_and_one_gang_of_another() -> None:
    """Under first come, first served it would wait for all that came before it."""
    world = TimedWorld(LeastAttained(quantum=0))
    for _ in range(50):
        world.comes(0, 1, ALL, 10)
    short = [world.comes(205, 2, ALL, 10) for _ in range(3)]
    world.run()
    assert short[-1].ended == 210 + 30


def test_service_counts_devices() -> None:
    world = TimedWorld(LeastAttained(quantum=0))
    for _ in range(4):
        world.comes(0, 1, range(4), 10)  # 40 each
        world.comes(0, 2, range(2), 10)  # 20 each
    assert clients(world) == [1, 2, 2, 1, 2, 2, 1, 1]


def test_on_one_level_the_older_run_goes_first() -> None:
    """Levels of 400, 800, 1600: clients that are alike run one after the other, not in turns."""
    world = TimedWorld(LeastAttained(quantum=400))
    for client in (1, 2):
        for _ in range(10):
            world.comes(client, client, ALL, 10)
    assert clients(world) == [1] * 10 + [2] * 10


def test_a_client_that_is_gone_is_forgotten() -> None:
    policy = LeastAttained()
    world = TimedWorld(policy)
    world.comes(0, 1, ALL, 10)
    world.run()
    world.scheduler.client_gone(1)
    assert not policy.attained


def test_nothing_is_wrong_with_it() -> None:
    sw.policies.check(LeastAttained, worlds=16)

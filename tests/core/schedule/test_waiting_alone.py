"""A gang that waits alone is not queued. Nobody can tell: picks, and what policies hear, are as if it had been."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.schedule.policy import HOOKS, Policy
from core.schedule.policy.fifo import Fifo
from core.schedule.policy.round_robin import RoundRobin
from core.schedule.policy.stride import Stride
from tests.core.schedule.order_world import OrderWorld

PLACES = [range(4), range(2), range(2, 4), range(1, 3), range(1)]
KINDS = (*["offer"] * 5, "pick", "fill", "finish", "gone", "withdraw")


def drawn(rng: Random) -> list[tuple[str, int, int]]:
    return [(rng.choice(KINDS), rng.randrange(3), rng.randrange(len(PLACES))) for _ in range(rng.randrange(40))]


def hearing(policy: Policy, heard: list[Any]) -> Policy:
    """The same policy, that writes down what it hears."""
    for name in HOOKS:
        told: Callable[..., None] = getattr(policy, name)
        if getattr(type(policy), name) is getattr(Policy, name):
            continue

        def tell(*about: Any, name: str = name, told: Callable[..., None] = told) -> None:
            heard.append((name, [getattr(each, "number", each) for each in about]))
            told(*about)

        setattr(policy, name, tell)
    return policy


def played(policy: Policy, actions: list[Any], queued: bool) -> tuple[list[Any], list[Any]]:
    """The numbers of the gangs in their order, and what the policy has heard. `queued`: all gangs are."""
    heard: list[Any] = []
    world = OrderWorld(hearing(policy, heard), window=1)
    if queued:
        world.scheduler._may_skip_queue = False
    for name, which, place in actions:
        if name == "offer":
            world.offer(which, PLACES[place])
        elif name == "pick":
            world.pick()
        elif name == "fill":
            world.fill()
        elif name == "finish" and world.may_finish():
            world.finish(world.may_finish()[which % len(world.may_finish())])
        elif name == "gone":
            world.scheduler.client_gone(which)
            world.waiting = [each for each in world.waiting if each.client != which]
        elif name == "withdraw" and world.waiting:
            ticket = world.waiting.pop(which % len(world.waiting))
            assert world.scheduler.withdraw(ticket.run) == 1
    world.drain()
    return [each.number for each in world.order], heard


@pytest.mark.parametrize("policy", [Fifo, Stride, RoundRobin])
@given(actions=st.integers(0, 1 << 32).map(Random).map(drawn))
def test_what_waits_alone_enters_as_it_would_from_its_queue(policy: Callable[[], Policy], actions: list[Any]) -> None:
    assert played(policy(), actions, queued=False) == played(policy(), actions, queued=True)


def test_it_does_wait_in_no_queue() -> None:
    world = OrderWorld(Stride)
    gangs = [world.offer(0, range(4))]
    assert [each.queue for each in gangs] == [None]
    assert [each.ticket for each in world.scheduler.waiting()] == gangs
    gangs.append(world.offer(1, range(4)))
    assert None not in [each.queue for each in gangs]
    assert world.fill() == gangs

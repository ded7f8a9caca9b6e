"""EASY backfill: what it promises of the first reservation, held against worlds in which gangs take what they cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from core.schedule.policy import Ready, Reserve, Ticket
from tests.core.schedule.timed_world import TimedWorld
from tests.reserving.backfill import EasyBackfill

LEFT, RIGHT, ALL = range(4), range(4, 8), range(8)
PLACES = (LEFT, RIGHT, ALL, range(2, 6), range(2), range(6, 8))


class Promising(EasyBackfill):
    """Remembers, for each gang that is the oldest, when it should start by what is known then."""

    def __init__(self) -> None:
        super().__init__()
        self.promised: dict[int, int] = {}

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        oldest = min([*ready.heads(), *ready.waiting()], key=lambda gang: gang.age)
        self.promised.setdefault(oldest.run, ready.free_at(oldest))
        return super().pick(ready, now)


def test_a_younger_gang_goes_first_if_it_is_over_in_time_and_only_then() -> None:
    world = TimedWorld(EasyBackfill())
    first = world.comes(0, 1, LEFT, 10)
    wide = world.comes(1, 2, ALL, 5)
    long = world.comes(2, 3, RIGHT, 9)  # over at 11, when it enters at 2
    short = world.comes(3, 4, RIGHT, 7)  # over at 10
    world.run()
    assert [each.started for each in (first, wide, long, short)] == [0, 10, 15, 3]
    assert [(each.since, each.until) for each in world.kept] == [(2, 3)]


def test_what_is_reserved_is_used_again_when_the_first_gang_ends_early() -> None:
    world = TimedWorld(EasyBackfill())
    world.comes(0, 1, LEFT, 100, lasts=10)
    wide, other = world.comes(1, 2, ALL, 5), world.comes(2, 3, RIGHT, 200)
    world.run()
    assert (wide.started, other.started) == (10, 15)


gangs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 4), st.sampled_from(PLACES), st.integers(1, 30)),
    min_size=2, max_size=25,
)  # fmt: skip


@given(gangs, st.integers(1, 3))
def test_law_backfill_never_delays_the_first_reservation(
    coming: list[tuple[int, int, range, int]], window: int
) -> None:
    policy = Promising()
    world = TimedWorld(policy, window)
    for at, client, place, cost in coming:
        world.comes(at, client, place, cost)
    world.run()
    for gang in world.gangs:
        assert gang.ended >= 0
        promised = policy.promised.get(gang.ticket.run)
        assert promised is None or gang.started <= promised


@given(gangs)
def test_law_the_oldest_of_those_that_compete_starts_no_later_than_in_the_order_of_arrival(
    coming: list[tuple[int, int, range, int]],
) -> None:
    """Backfill only fills: held against first come, first served, worked out by hand, no head of the line is later."""
    world = TimedWorld(EasyBackfill())
    for at, client, place, cost in coming:
        world.comes(at, client, place, cost)
    world.run()
    free = dict.fromkeys(range(8), 0)
    for gang in sorted(world.gangs, key=lambda each: each.ticket.age):
        start = max([gang.ticket.submitted, *(free[device] for device in gang.devices)])
        for device in gang.devices:
            free[device] = start + gang.lasts
    assert max(gang.ended for gang in world.gangs) <= max(free.values()) + max(gang.lasts for gang in world.gangs)


def test_nothing_is_wrong_with_it() -> None:
    sw.policies.check(EasyBackfill, worlds=16)

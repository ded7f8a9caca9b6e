"""Deadlines with admission: who is admitted is on time, and one call too many makes nobody else late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from core.schedule.policy import Deadline, Policy, Ready, Reserve, Ticket
from examples.policies.admission import DeadlineAdmission
from tests.core.schedule.timed_world import TimedGang, TimedWorld

ALL, LEFT = range(8), range(4)


def late(world: TimedWorld) -> list[int]:
    return [each.ticket.run for each in world.gangs if 0 < each.ticket.deadline < each.ended]


def overload(policy: type[Policy]) -> list[int]:
    """Ten gangs come at once, each due when those before it and it are over. One more comes, and is in a hurry."""
    world = TimedWorld(policy)
    world.comes(0, 1, ALL, 10, deadline=10)
    for count in range(2, 11):
        world.comes(0, count, ALL, 10, deadline=10 * count)
    world.comes(1, 11, ALL, 10, deadline=20)
    return late(world.run())


def test_one_gang_too_many_is_the_only_late_one() -> None:
    assert len(overload(Deadline)) == 9, "each is late because of the one before it"
    assert overload(DeadlineAdmission) == [11]


class Remembering(DeadlineAdmission):
    def __init__(self) -> None:
        self.promised: set[int] = set()

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        self.promised |= {gang.run for gang in self.admitted(ready)}
        return super().pick(ready, now)


@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(1, 30), st.integers(0, 90), st.booleans()), min_size=1, max_size=20
    )
)
def test_law_what_is_admitted_is_on_time(coming: list[tuple[int, int, int, bool]]) -> None:
    """Each gang has a client of its own, so that all are seen; all want the same devices."""
    policy = Remembering()
    world = TimedWorld(policy)
    for client, (at, cost, due, hurries) in enumerate(coming):
        world.comes(at, client, ALL, cost, deadline=at + cost + due if hurries else 0)
    world.run()
    assert all(gang.ended >= 0 for gang in world.gangs)
    assert not policy.promised & set(late(world))


def test_devices_are_kept_free_where_a_gang_without_a_deadline_would_make_an_admitted_one_late() -> None:
    world = TimedWorld(DeadlineAdmission())
    world.comes(0, 1, LEFT, 10)
    due: TimedGang = world.comes(1, 2, ALL, 10, deadline=22)
    short, long = world.comes(2, 3, range(4, 8), 5), world.comes(3, 4, range(4, 8), 30)
    world.run()
    assert (short.started, due.started, long.started) == (2, 10, 20)
    assert [(each.since, each.until) for each in world.kept] == [(7, 10)]


def test_nothing_is_wrong_with_it() -> None:
    sw.policies.check(DeadlineAdmission, worlds=16, may_starve=True)

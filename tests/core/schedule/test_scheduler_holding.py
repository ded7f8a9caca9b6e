"""A gang is held back for one that was passed too often only as long as this brings that one nearer to its turn.

So the bound on passing keeps no device idle for a gang that the policy itself puts last.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.schedule.policy import Priority, Shortest
from core.schedule.scheduler import Ticket
from tests.laws import examples

from .order_world import OrderWorld

LEFT, RIGHT, ALL = range(4), range(4, 8), range(8)
PREFERRED, WIDE, HEAVY = 1, 2, 3  # clients


def backlog(world: OrderWorld, client: int, devices: range, cost: int, priority: int) -> None:
    """Keep two gangs of this client waiting."""
    while sum(ticket.client == client for ticket in world.waiting) < 2:
        world.offer(client, devices, cost, priority=priority)


def half_by_half(
    world: OrderWorld, steps: int, heavy: int = 5, preferred: int = 1, *, past_wide: bool = True
) -> tuple[list[Ticket], int]:
    """Give one half work that goes before the wide gang, and the other half work that goes behind it.

    Return what entered, and how long the second half was idle at most, in gangs that ended on the first half meanwhile.
    `past_wide`: whether to go on when the wide gang has entered.
    """
    wide = world.offer(WIDE, ALL, 3, priority=1)
    idle = longest = 0
    for _ in range(steps):
        backlog(world, PREFERRED, LEFT, preferred, 2)
        backlog(world, HEAVY, RIGHT, heavy, 0)
        world.fill()
        works = any(ticket.client != PREFERRED for ticket in world.flying)
        idle = 0 if works else idle + 1
        longest = max(longest, idle)
        if not past_wide and wide in world.flying:
            break
        for ticket in [each for each in world.may_finish() if each.client == PREFERRED] or world.may_finish():
            world.finish(ticket)
        for ticket in world.may_finish():
            if ticket.client != PREFERRED:
                world.finish(ticket)
    return world.order, longest


def test_the_other_half_works_on_while_the_policy_puts_a_wide_gang_behind() -> None:
    """The policy lets the wide gang wait for the first half, so it would gain nothing if the second half were idle."""
    world = OrderWorld(Priority(age=0), window=1, max_passes=2)
    order, longest = half_by_half(world, 200)
    assert [ticket.client for ticket in order].count(HEAVY) > 60
    assert longest <= 2
    assert WIDE not in [ticket.client for ticket in order], "the gang does not age, as configured"


def test_when_the_policy_prefers_the_wide_gang_it_is_passed_up_to_the_bound() -> None:
    world = OrderWorld(Shortest(stretch=10), window=2, max_passes=3)
    order, _ = half_by_half(world, 200)
    clients = [ticket.client for ticket in order]
    assert WIDE in clients
    wide = order[clients.index(WIDE)]
    turned = wide.since + 10 * wide.cost  # gangs that come from now on go behind it
    later = [ticket for ticket in order[: clients.index(WIDE)] if ticket.since + 10 * ticket.cost > turned]
    behind = [ticket for ticket in later if ticket.client == HEAVY]
    last_preferred = max(at for at, ticket in enumerate(order) if ticket.client == PREFERRED and
                         ticket.since + 10 * ticket.cost <= turned)  # fmt: skip
    passed = [ticket for ticket in order[last_preferred + 1 : clients.index(WIDE)] if ticket in behind]
    assert len(passed) <= 3, "the bound holds, counted from the last that the policy put before it"


@examples(40)
@given(window=st.integers(1, 4), passes=st.integers(1, 6), heavy=st.integers(1, 40), preferred=st.integers(1, 10))
def test_law_no_half_stands_idle_longer_than_what_is_in_flight_on_the_other(
    window: int, passes: int, heavy: int, preferred: int
) -> None:
    """The second half waits at most for the gangs in flight on the first.

    It may go on with the next gang that the policy puts before the wide one.
    """
    world = OrderWorld(Priority(age=0), window=window, max_passes=passes)
    _, longest = half_by_half(world, 120, heavy, preferred)
    assert longest <= window + 1


@given(window=st.integers(1, 3), passes=st.integers(0, 4), heavy=st.integers(1, 40), stretch=st.integers(0, 20))
def test_law_under_a_policy_that_ages_the_wide_gang_runs(window: int, passes: int, heavy: int, stretch: int) -> None:
    world = OrderWorld(Shortest(stretch), window=window, max_passes=passes)
    order, _ = half_by_half(world, 60 + 40 * heavy * (passes + window + 1), heavy, past_wide=False)
    assert WIDE in [ticket.client for ticket in order]

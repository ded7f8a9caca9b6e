"""What a policy that reserves is shown is worked out once a turn. It is what working it out anew would give, and it
costs no more the more gangs, clients and slices there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from heapq import heappop, heappush
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Atoms, line, spans
from core.schedule import Scheduler, Ticket
from core.schedule.policy import Fifo, Policy, Ready, Reserve
from tests.reserving.backfill import EasyBackfill
from tests.reserving.gang_reservation import GangReservation

from .timed_world import TimedGang, TimedWorld

PLACES = (range(4), range(4, 8), range(8), range(2, 6), range(2), range(6, 8), range(8, 10))

Row = tuple[int, int, int, int]


def running_by_hand(world: TimedWorld, now: int) -> list[tuple[TimedGang, Row]]:
    """(gang, what is expected of it) of all that has entered and not ended, from what has happened alone."""
    found: list[tuple[TimedGang, Row]] = []
    for gang in [each for each in world.order if each.ended < 0]:
        shared = [each for each in world.order if not each.devices.isdisjoint(gang.devices)]
        starts = max(gang.entered, *(each.ended for each in shared), 0)
        starts = max([starts, *(row[3] for other, row in found if other in shared)])
        ends = starts + gang.ticket.cost
        if ends <= now:
            ends = now + max(now - ends, gang.ticket.cost // 8, 1_000)
        found.append((gang, (gang.ticket.run, gang.entered, starts, ends)))
    return found


class Looking(Policy):
    """Looks at all that it is shown, and compares."""

    reserves = True

    def __init__(self, pauses: bool) -> None:
        self.pauses = pauses
        self.world: TimedWorld | None = None
        self.looks = 0

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        assert self.world is not None
        running = running_by_hand(self.world, now)
        shown = {each.ticket.run: each for each in ready.running()}
        for _, row in running:
            if row[0] in shown:
                each = shown.pop(row[0])
                assert (each.ticket.run, each.entered, each.starts, each.ends) == row
        assert not shown
        for gang in [*ready.heads(), *ready.waiting()]:
            devices = frozenset(spans.items(ready.devices(gang)))
            ends = [row[3] for other, row in running if not other.devices.isdisjoint(devices)]
            assert ready.free_at(gang) == max([now, *ends])
            self.looks += 1
        gang = ready.best()
        until = gang.submitted + 2_000
        return Reserve(until=until) if self.pauses and gang.client == 1 and now < until else gang


@given(
    st.lists(
        st.tuples(
            st.integers(0, 60), st.integers(1, 4), st.sampled_from(PLACES), st.integers(1, 30), st.integers(1, 60)
        ),
        min_size=1, max_size=25,
    ),
    st.integers(1, 3),
    st.booleans(),
)  # fmt: skip
def test_law_what_it_is_shown_follows_from_what_has_happened(
    coming: list[tuple[int, int, range, int, int]], window: int, pauses: bool
) -> None:
    policy = Looking(pauses)
    world = policy.world = TimedWorld(policy, window)
    for at, client, place, cost, lasts in coming:
        world.comes(at * 100, client, place, cost * 100, lasts=lasts * 100)
    world.run()
    assert policy.looks >= len(coming)


# --- what it costs --------------------------------------------------------------------------------------------

DEVICES = 2048
GANGS = 60


def calls_a_gang(policy: Callable[[], Policy], clients: int, queued: int, window: int) -> float:
    """Calls of Python functions for each gang that ends, and whose client then has a next one: one client has all
    devices, and each other one a slice of its own."""
    atoms, size = Atoms(), DEVICES // clients
    places = [atoms.intern(line(0, 0, DEVICES))]
    places += [atoms.intern(line(0, size * number, size)) for number in range(1, clients)]
    scheduler, ends = Scheduler(atoms, policy(), window), dict.fromkeys(places, 0)
    flying: list[tuple[int, int, Ticket]] = []
    came = now = ended = calls = 0

    def offer(client: int) -> None:
        nonlocal came
        came += 1
        ticket = Ticket(came, 0, client, places[client], 1_000_000 + client * 1_000, submitted=now)
        ticket.priority = int(client % 8 == 0)
        scheduler.offer(ticket, now)

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    for _ in range(queued):
        for client in range(clients):
            offer(client)
    sys.setprofile(see)
    try:
        while ended < GANGS:
            while (ticket := scheduler.pick(now)) is not None:
                shared = places if ticket.place == places[0] else (ticket.place, places[0])
                ends[ticket.place] = max(now, *(ends[each] for each in shared)) + ticket.cost
                heappush(flying, (ends[ticket.place], ticket.number, ticket))
            due = scheduler.next_wakeup()
            if due is not None and due < flying[0][0]:
                now = due
                scheduler.wakeup(now)
                continue
            now, _, ticket = heappop(flying)
            scheduler.finished(ticket, now)
            ended += 1
            offer(ticket.client)
    finally:
        sys.setprofile(None)
    assert not scheduler.faults
    return calls / GANGS


@pytest.mark.parametrize("policy", [Fifo, EasyBackfill, GangReservation])
def test_a_longer_queue_is_no_reason_for_a_gang_to_cost_more(policy: type[Policy]) -> None:
    few, many = (calls_a_gang(policy, 16, queued, 2) for queued in (4, 32))
    assert many < 1.1 * few


@pytest.mark.parametrize(("policy", "most"), [(EasyBackfill, 100), (GangReservation, 45)])
def test_the_cost_of_a_gang_grows_no_faster_than_the_number_of_clients(policy: type[Policy], most: int) -> None:
    """They look at each client's first gang whenever they are asked; what runs behind it costs nothing more.
    (Python 3.11 counts comprehensions as calls.)"""
    for clients, window in ((16, 8), (64, 8), (64, 2)):
        assert calls_a_gang(policy, clients, 8, window) < most * clients

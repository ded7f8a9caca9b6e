"""Examples for each policy, for a user's own policy and its faults, and for names. Their laws are in test_shares."""

from __future__ import annotations

import random

import pytest

from core.model.errors import Impossible
from core.schedule.policy import (
    POLICIES,
    Deadline,
    Fifo,
    Policy,
    Priority,
    Ready,
    RoundRobin,
    Shortest,
    Stride,
    Ticket,
    named,
)
from core.schedule.policy.fair import Fair

from .order_world import OrderWorld

ALL, LEFT, RIGHT = range(4), range(2), range(2, 4)


def clients(world: OrderWorld, picks: int = 99) -> list[int]:
    """Run all gangs one after the other. Return their clients."""
    served: list[int] = []
    while len(served) < picks and (picked := world.pick()) is not None:
        served.append(picked.client)
        world.finish(picked)
    return served


def test_fifo_serves_the_oldest_run() -> None:
    world = OrderWorld(Fifo)
    for client, submitted in ((0, 5), (1, 3), (0, 1), (2, 3)):
        world.offer(client, ALL, submitted=submitted)
    assert clients(world) == [0, 1, 2, 0]


def test_stride_charges_cost_times_devices() -> None:
    world = OrderWorld(Stride)
    for _ in range(8):
        world.offer(0, range(4), cost=30)
        world.offer(1, range(2), cost=20)
    assert clients(world, 8).count(1) == 6


def test_stride_gives_an_idle_client_no_credit() -> None:
    world = OrderWorld(Stride)
    for _ in range(20):
        world.offer(0, ALL)
    assert clients(world, 10) == [0] * 10
    for _ in range(4):
        world.offer(1, ALL)
    assert clients(world, 8).count(0) == 4


def test_stride_keeps_the_debt_of_a_client_that_leaves_and_comes_back() -> None:
    """Also of a client that offers each gang only when the last has entered, and so hardly ever waits."""
    world = OrderWorld(Stride, window=1)
    world.offer(0, ALL, cost=90)
    world.offer(1, ALL, cost=10)
    served = []
    for _ in range(20):
        picked = world.fill()[0]
        served.append(picked.client)
        world.offer(picked.client, ALL, cost=picked.cost)
        world.finish(picked)
    assert served.count(0) == 2


def test_priority_is_strict_until_a_gang_has_aged() -> None:
    world = OrderWorld(Priority(age=100), window=1)
    low = world.offer(0, ALL, priority=0)
    served = []
    for _ in range(12):
        world.offer(1, ALL, cost=20, priority=2)
        picked = world.fill()[0]
        served.append(picked)
        world.finish(picked)
    assert served.index(low) == 10  # 200 ns make up for two levels


def test_priority_ages_by_a_gangs_waiting_and_not_by_its_runs() -> None:
    world = OrderWorld(Priority(age=100))
    world.now = 1_000_000
    world.offer(0, ALL, priority=0, submitted=0)
    world.offer(1, ALL, priority=1)
    assert clients(world) == [1, 0]


def test_without_ageing_priority_is_strict_for_ever() -> None:
    world = OrderWorld(Priority(age=0))
    world.offer(0, ALL, priority=0)
    world.now = 1 << 60
    world.offer(1, ALL, priority=1)
    assert clients(world) == [1, 0]


def test_shortest_serves_the_shortest_of_all_and_not_only_of_the_oldest() -> None:
    world = OrderWorld(Shortest)
    for client, cost in ((0, 50), (0, 10), (1, 30), (1, 40)):
        world.offer(client, ALL, cost)
    assert [picked.cost for picked in (world.pick(), world.pick()) if picked] == [10, 30]


def test_shortest_lets_a_long_gang_be_passed_only_for_so_long() -> None:
    world = OrderWorld(Shortest(stretch=2), window=1)
    long = world.offer(0, ALL, cost=100)
    served = []
    for _ in range(25):
        world.offer(1, ALL, cost=10)
        picked = world.fill()[0]
        served.append(picked)
        world.finish(picked)
    assert served.index(long) == 18  # the gangs that came in the 2 * (100 - 10) after it went first


def test_deadline_serves_the_earliest_first_and_gangs_without_a_deadline_last() -> None:
    world = OrderWorld(Deadline)
    for client, deadline in ((0, 0), (1, 900), (2, 300), (0, 200)):
        world.offer(client, ALL, deadline=deadline)
    assert clients(world) == [0, 2, 1, 0]


def test_round_robin_gives_equal_turns_whatever_they_cost() -> None:
    world = OrderWorld(RoundRobin)
    for _ in range(3):
        world.offer(0, ALL, cost=100)
    for _ in range(2):
        world.offer(1, ALL, cost=1, weight=9)
    world.offer(2, ALL)
    assert clients(world) == [0, 1, 2, 0, 1, 0]


def test_a_new_client_joins_the_current_round() -> None:
    world = OrderWorld(RoundRobin)
    for _ in range(9):
        world.offer(0, ALL)
        world.offer(1, ALL)
    clients(world, 8)
    for _ in range(5):
        world.offer(2, ALL)
    assert clients(world, 6).count(2) == 2


def test_fair_policies_forget_clients_that_are_gone() -> None:
    world = OrderWorld(Stride)
    for place in (range(2), range(2, 4), ALL):
        world.offer(0, place)
    world.drain()
    assert isinstance(world.scheduler.policy, Fair)
    assert not world.scheduler.policy._clocks


class Lottery(Policy):
    """Draws a client at random, in proportion to the weights. (The example in `core.schedule.policy.base`.)"""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, ready: Ready, now: int) -> Ticket:
        heads = ready.heads()
        return self.chance.choices(heads, [ticket.weight for ticket in heads])[0]


def test_a_users_own_policy_takes_ten_lines() -> None:
    def order() -> list[int]:
        world = OrderWorld(Lottery(random.Random(1)))
        for _ in range(200):
            world.offer(0, ALL, weight=1)
            world.offer(1, ALL, weight=3)
        return clients(world, 200)

    assert 120 < order().count(1) < 180
    assert order() == order()


class RecordingPolicy(Policy):
    """A policy that records what it is shown."""

    def __init__(self) -> None:
        self.saw: list[tuple[list[int], list[int], list[int]]] = []

    def pick(self, ready: Ready, now: int) -> Ticket:
        oldest = [ready.oldest(client).run for client in ready.clients()]
        self.saw.append((ready.clients(), oldest, sorted(ticket.run for ticket in ready)))
        return ready.oldest(ready.clients()[-1])


def test_a_policy_sees_one_domain_by_client_and_as_a_whole() -> None:
    looks = RecordingPolicy()
    world = OrderWorld(looks, window=1)
    world.offer(0, range(2), run=1)
    world.offer(1, range(1, 4), run=2)
    world.offer(1, range(1), run=3)
    world.offer(2, range(8, 9), run=4)
    world.offer(1, range(2), run=5)
    world.fill()
    assert looks.saw[0] == ([0, 1], [1, 2], [1, 2, 3, 5])
    assert ([2], [4], [4]) in looks.saw


class AsksForNobody(Fifo):
    """A policy that asks for a client that has no gangs."""

    said = ""

    def pick(self, ready: Ready, now: int) -> Ticket:
        try:
            return ready.oldest(7)
        except ValueError as error:
            self.said = str(error)
        return ready.best()


def test_a_client_without_gangs_that_may_enter_is_named() -> None:
    asks = AsksForNobody()
    world = OrderWorld(asks, window=1)
    world.offer(3, range(2), run=1)
    world.fill()
    assert asks.said == "client 7 has no gang that may enter now: clients() names those that do"


# --- policies that fail


class RaisingPolicy(Policy):
    """A policy that raises after a while."""

    def __init__(self, where: str, picks: int = 2) -> None:
        self.where, self.picks = where, picks

    def pick(self, ready: Ready, now: int) -> Ticket:
        self.picks -= 1
        if self.where == "pick" and self.picks < 0:
            raise RuntimeError("no more")
        return max(ready, key=lambda ticket: ticket.number)

    def rank(self, ticket: Ticket) -> int:
        if self.where == "rank" and ticket.client == 9:
            raise RuntimeError("no more")
        return "high" if self.where == "type" and ticket.client == 9 else -ticket.number  # type: ignore[return-value]

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        if self.where == "entered" and self.picks <= 0:
            raise RuntimeError("no more")

    def joined(self, client: int, domain: int) -> None:
        if self.where == "joined" and client == 9:
            raise RuntimeError("no more")


@pytest.mark.parametrize("where", ["pick", "rank", "type", "entered", "joined"])
def test_fifo_takes_over_for_good_from_a_policy_that_raises(where: str) -> None:
    world = OrderWorld(RaisingPolicy(where), window=1)
    world.may_fault = True
    gangs = [world.offer(client, ALL) for client in range(6)]
    for _ in range(2):
        world.finish(world.fill()[0])
    assert world.order == [gangs[5], gangs[4]]
    world.offer(9, ALL)
    world.drain()
    assert [each.client for each in world.order[2:]] == [0, 1, 2, 3, 9]
    assert len(world.scheduler.faults) == 1
    assert world.scheduler.faults[0][0] == "RaisingPolicy"
    assert isinstance(world.scheduler.policy, Fifo)


def test_a_policy_that_fails_while_all_gangs_are_ranked_again_leaves_a_fifo_queue() -> None:
    world = OrderWorld(RaisingPolicy("rank"), window=1)
    world.may_fault = True
    world.offer(0, ALL)
    world.fill()
    for _ in range(3):
        world.offer(1, ALL)
    gangs = list(world.waiting)
    gangs[1].client = 9  # so that the policy fails the second time
    world.scheduler._rank_again()
    gangs[1].client = 1
    assert len(world.scheduler.faults) == 1
    world.finish(world.flying[0])
    assert world.fill() == gangs[:1]


class WrongPicks(Policy):
    def __init__(self, pick: str) -> None:
        self.choice = pick
        self.old: list[Ticket] = []

    def pick(self, ready: Ready, now: int) -> Ticket:
        self.old.append(ready.best())
        if self.choice == "nothing":
            return None  # type: ignore[return-value]
        if self.choice == "an old one":
            return self.old[0]
        return Ticket(run=99, step=0, client=0, place=0, cost=1)


@pytest.mark.parametrize("choice", ["nothing", "an old one", "its own"])
def test_fifo_takes_over_from_a_policy_that_picks_a_gang_that_is_not_ready(choice: str) -> None:
    world = OrderWorld(WrongPicks(choice), window=8)
    world.may_fault = True
    gangs = [world.offer(0, ALL) for _ in range(3)]
    assert world.fill() == gangs
    assert world.scheduler.faults == [("WrongPicks", "picked what is not ready when asked to pick")]


class PicksWidest(Policy):
    """A policy that always picks the widest gang it has ever seen."""

    def __init__(self) -> None:
        self.seen: list[Ticket] = []

    def joined(self, client: int, domain: int) -> None:
        pass

    def rank(self, ticket: Ticket) -> int:
        self.seen.append(ticket)
        return 0

    def pick(self, ready: Ready, now: int) -> Ticket:
        return max(self.seen, key=lambda ticket: ticket.devices)


def test_a_gang_without_room_is_not_ready() -> None:
    world = OrderWorld(PicksWidest(), window=1)
    world.may_fault = True
    narrow = world.offer(0, LEFT)
    assert world.fill() == [narrow]
    world.offer(0, ALL)
    other = world.offer(0, RIGHT)
    assert world.fill() == [other]
    assert len(world.scheduler.faults) == 1


# --- names


@pytest.mark.parametrize(("name", "policy"), POLICIES.items())
def test_each_policy_has_a_name(name: str, policy: type[Policy]) -> None:
    assert type(named(name)) is policy


def test_a_name_may_have_options() -> None:
    priority = named("priority: age=10ms")
    assert isinstance(priority, Priority)
    assert priority.age == 10_000_000
    shortest = named("Shortest:stretch=7")
    assert isinstance(shortest, Shortest)
    assert shortest.stretch == 7
    assert isinstance(named("round-robin"), RoundRobin)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("strid", r"no policy is called 'strid'; there are fifo, stride, .* \(did you mean 'stride'\?\)"),
        ("", "no policy is called ''"),
        ("priority:ages=3", r"'priority' has no option 'ages'; its options: age, preempt \(did you mean 'age'\?\)"),
        ("fifo:age=3", "'fifo' has no option 'age'; it has none"),
        ("priority:age=soon", "'soon' for option 'age' of policy 'priority': give a whole number"),
        ("priority:age", "'' for option 'age'"),
        ("priority:age=3h", "'3h' for option 'age'"),
    ],
)
def test_a_wrong_name_is_refused_with_the_names_that_exist(text: str, says: str) -> None:
    with pytest.raises(Impossible, match=says):
        named(text)

"""Laws of the scheduler: shares, work conservation, passing, no starvation, independence of domains."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.schedule.contention import PlaceQueue
from core.schedule.policy import POLICIES, Deadline, Fifo, Policy, Priority, Ready, RoundRobin, Shortest, Stride, Ticket
from tests.laws import examples

from .order_world import EarlyEntry, OrderWorld

ALL = pytest.mark.parametrize("policy", list(POLICIES.values()))

randoms = st.integers(0, 1 << 32).map(Random)  # hundreds of draws each, which hypothesis would take seconds for
weights = st.integers(1, 9)
windows = st.integers(1, 4)


# --- shares


@given(rng=randoms, clients=st.lists(weights, min_size=2, max_size=4), window=windows)
def test_backlogged_clients_get_shares_by_weight(rng: Random, clients: list[int], window: int) -> None:
    """|S_i/w_i - S_j/w_j| <= (d+1)(L/w_i + L/w_j) at every moment, for entered and for finished service."""
    world = OrderWorld(Stride, window)
    entered, finished = Counter[int](), Counter[int]()
    longest = 0
    slack = Fraction(1, 100)  # because charges are rounded to whole numbers

    def offer(client: int) -> None:
        nonlocal longest
        ticket = world.offer(client, range(4), rng.randint(1, 50), weight=clients[client])
        longest = max(longest, ticket.cost * 4)

    for client in range(len(clients)):
        for _ in range(2):
            offer(client)
    for _ in range(25):
        while (picked := world.pick()) is not None:
            offer(picked.client)
            entered[picked.client] += picked.cost * 4
            for (i, wi), (j, wj) in itertools.combinations(enumerate(clients), 2):
                bound = Fraction(longest, wi) + Fraction(longest, wj) + slack
                assert abs(Fraction(entered[i], wi) - Fraction(entered[j], wj)) <= bound
                assert abs(Fraction(finished[i], wi) - Fraction(finished[j], wj)) <= (window + 1) * bound
        over = world.may_finish()[0]
        finished[over.client] += over.cost * 4
        world.finish(over)


@examples(20)
@given(rng=randoms)
def test_clients_that_come_and_go_do_not_change_shares(rng: Random) -> None:
    """While two clients have work waiting, their service differs by at most one gang of each.

    A client that was idle has saved up nothing, and one that left early still counts what it got.
    """
    world = OrderWorld(Stride, window=1)
    weight = {client: rng.randint(1, 9) for client in range(3)}
    lengths = {client: rng.randint(1, 50) for client in range(3)}
    served = Counter[int]()
    left = dict.fromkeys(weight, 0)  # gangs that a client still has to submit, one after the other
    seen: dict[tuple[int, int], list[Fraction]] = {}
    for _ in range(60):
        newcomer = rng.choice([None, None, *weight])
        if newcomer is not None and not left[newcomer]:
            left[newcomer] = rng.randint(1, 12)
            world.offer(newcomer, range(2), lengths[newcomer], weight=weight[newcomer])
        for ticket in world.fill():
            client = ticket.client
            served[client] += ticket.cost * 2
            left[client] -= 1
            if left[client]:
                world.offer(client, range(2), lengths[client], weight=weight[client])
        for i, j in itertools.combinations(weight, 2):
            if left[i] and left[j]:
                leads = seen.setdefault((i, j), [])
                leads.append(Fraction(served[i], weight[i]) - Fraction(served[j], weight[j]))
                bound = Fraction(2 * lengths[i], weight[i]) + Fraction(2 * lengths[j], weight[j])
                assert max(leads) - min(leads) <= bound + Fraction(1, 100)
            else:
                seen.pop((i, j), None)
        if world.flying:
            world.finish(world.flying[0])


def test_wide_and_narrow_clients_get_equal_device_seconds() -> None:
    """With one client on all 8 devices and two on one half each, each gets a third, if no gang may be passed."""
    world, total = OrderWorld(Stride, window=1, max_passes=0), Counter[int]()
    places = [range(8), range(4), range(4, 8)]
    for client, place in enumerate(places):
        world.offer(client, place)
    for _ in range(900):
        for picked in world.fill():
            total[picked.client] += picked.cost * picked.devices
            world.offer(picked.client, places[picked.client])
        world.finish(world.flying[0])
    assert [total[c] / sum(total.values()) for c in range(3)] == pytest.approx([1 / 3] * 3, rel=0.05)


def turns(world: OrderWorld, places: dict[int, range], weights: dict[int, int], finishes: int) -> Counter[int]:
    """Let these clients have work waiting for this long. Return how many gangs of each enter."""
    served: Counter[int] = Counter()
    for client, place in places.items():
        if not any(each.client == client for each in world.waiting):
            world.offer(client, place, weight=weights[client])
    for _ in range(finishes):
        for picked in world.fill():
            served[picked.client] += 1
            if picked.client in places:
                world.offer(picked.client, places[picked.client], weight=weights[picked.client])
        world.finish(world.flying[0])
    return served


def test_neighbours_do_not_pay_for_the_load_of_a_third_client() -> None:
    """Heavy client 1 (left half) delays client 0 (both halves), and client 2 (right half) uses the idle devices.

    When client 1 ends, client 0 does not shut client 2 out to catch up.
    """
    world = OrderWorld(Stride, window=1, max_passes=50)
    places, weights = {0: range(8), 1: range(4), 2: range(4, 8)}, {0: 1, 1: 3, 2: 1}
    before = turns(world, places, weights, 900)
    assert before[2] > before[0] * 4  # a client that uses idle devices gets more than its share
    world.scheduler.client_gone(1)
    world.waiting = [each for each in world.waiting if each.client != 1]
    del places[1]
    after = turns(world, places, weights, 30)
    assert after[2] >= 14


def test_a_newcomer_does_not_wait_for_a_client_that_used_idle_devices() -> None:
    """As above, then client 3 comes to the left half. It is not compared with client 2, which is far ahead by then."""
    world = OrderWorld(Stride, window=1, max_passes=50)
    places, weights = {0: range(8), 1: range(4), 2: range(4, 8)}, {0: 1, 1: 100, 2: 1, 3: 100}
    turns(world, places, weights, 900)
    after = turns(world, places | {3: range(4)}, weights, 60)
    assert after[3] >= after[1]


# --- whatever the policy: random work on overlapping places

PLACES = [range(8), range(4), range(4, 8), range(2), range(2, 4), range(4, 6), range(1, 5), range(8, 12)]
Actions = list[tuple[str, int, int, int, int]]


def drawn(rng: Random) -> Actions:
    """What happens; client, place, cost; priority, deadline and ripeness."""
    kinds = ("offer", "offer", "offer", "finish", "ripen", "withdraw")
    return [
        (rng.choice(kinds), rng.randrange(4), rng.randrange(len(PLACES)), rng.randint(1, 50), rng.randrange(4))
        for _ in range(rng.randint(30, 60))
    ]


actions = randoms.map(drawn)


def play(world: OrderWorld, script: Actions, watch: object = None) -> list[tuple[int, int]]:
    for what, client, place, cost, spice in script:
        if what == "offer":
            world.offer(
                client, PLACES[place], cost, weight=1 + spice, priority=spice, deadline=spice * 100, ripe=spice > 0
            )
        elif what == "finish" and world.may_finish():
            firsts = world.may_finish()
            world.finish(firsts[place % len(firsts)])
        elif what == "ripen":
            for ticket in [*world.waiting, *world.flying][place::3]:
                world.scheduler.ripen(ticket)
        elif what == "withdraw" and world.waiting:
            ticket = world.waiting.pop(place % len(world.waiting))
            assert world.scheduler.withdraw(ticket.run) == 1
        if callable(watch):
            watch()
        else:
            world.fill()
    return [(each.run, each.step) for each in world.order]


@ALL
@examples(20)
@given(script=actions, window=windows, passes=st.integers(0, 3), early=st.sampled_from(["always", "idle", "never"]))
def test_picks_are_work_conserving_and_all_work_ends(
    policy: type[Policy], script: Actions, window: int, passes: int, early: EarlyEntry
) -> None:
    """`OrderWorld` checks each pick: the window, late inputs, and that no gang that could enter is left out."""
    world = OrderWorld(policy, window, passes, early)
    play(world, script)
    for ticket in world.waiting:
        world.scheduler.ripen(ticket)
    world.drain()
    assert not world.scheduler.waiting()
    assert not world.scheduler.faults
    assert not world.scheduler._runs
    assert all(not lane.full and not lane.barred and not lane.holds for lane in lanes(world))
    assert all(lane.domain is None for lane in lanes(world))


@ALL
@examples(5)
@given(script=actions, window=windows)
def test_the_same_events_give_the_same_order(policy: type[Policy], script: Actions, window: int) -> None:
    assert play(OrderWorld(policy, window), script) == play(OrderWorld(policy, window), script)


def lanes(world: OrderWorld) -> list[PlaceQueue]:
    return list(world.scheduler._contention.known.values())


@examples(20)
@given(script=actions, window=windows)
def test_domains_are_the_connected_components_of_living_places(script: Actions, window: int) -> None:
    world = OrderWorld(Stride, window, max_passes=1)

    def watch() -> None:
        world.fill()
        living = {each.place for each in [*world.waiting, *world.flying]}
        component = {place: place for place in living}
        for one, other in itertools.product(living, repeat=2):
            if world.places[one] & world.places[other]:
                keep, drop = component[one], component[other]
                component = {place: keep if at == drop else at for place, at in component.items()}
        found = {lane.key: lane.domain for lane in lanes(world) if lane.domain is not None}
        assert found.keys() == living
        for one, other in itertools.product(living, repeat=2):
            assert (found[one] is found[other]) == (component[one] == component[other])
        for domain in {id(each): each for each in found.values()}.values():
            ripe = Counter(client for lane in domain.lanes.values() for client in lane.ripe)
            assert domain.clients == ripe
        assert isinstance(world.scheduler.policy, Stride)
        clocks = world.scheduler.policy._clocks
        assert clocks.keys() <= {each.id for each in found.values()}
        for domain in found.values():
            if domain.clients:
                assert clocks[domain.id].waiting.keys() == domain.clients.keys()

    play(world, script, watch)


# --- passing: an oracle that knows each policy's preference by heart

PREFERS: dict[type[Policy], Callable[[Ticket], int]] = {
    Fifo: lambda t: 0,
    Deadline: lambda t: t.deadline or 1 << 62,
    Priority: lambda t: t.since - t.priority * 1_000_000_000,
    Shortest: lambda t: t.since + 100 * t.cost,
}


@pytest.mark.parametrize("policy", list(PREFERS))
@examples(20)
@given(script=actions, window=windows, limit=st.integers(0, 3))
def test_no_place_is_passed_more_often_than_the_bound(
    policy: type[Policy], script: Actions, window: int, limit: int
) -> None:
    """A place is passed if a gang enters before a gang of that place which the policy prefers.

    This happens at most `max_passes` times before the place is served, its gang is withdrawn, or the policy itself puts
    the gang behind another.
    """
    world = OrderWorld(policy, window, limit, "always")
    passed: Counter[int] = Counter()
    prefers = PREFERS[policy]

    def watch() -> None:
        for place in passed.keys() - {each.place for each in world.waiting}:
            del passed[place]
        while True:
            waiting = list(world.waiting)
            picked = world.pick()
            if picked is None:
                return
            rivals = [each for each in waiting if world.overlap(each, picked)]
            first = min(rivals, key=lambda each: (prefers(each), each.age))
            if first is not picked:
                passed[first.place] += 1
                assert passed[first.place] <= limit
            else:
                for place in {each.place for each in rivals}:
                    del passed[place]
            del passed[picked.place]

    play(world, script, watch)
    world.drain()


# --- starvation


class Adversary:
    """Keeps the devices of one gang, the victim, busy with work that the policy prefers, on parts of its place."""

    def __init__(self, policy: Policy, max_passes: int = 4) -> None:
        self.world = OrderWorld(policy, 2, max_passes)

    def feed(self) -> None:
        for client, place in ((1, range(4)), (2, range(4, 8)), (3, range(8))):
            while sum(each.client == client for each in self.world.waiting) < 2:
                self.world.offer(client, place, cost=1, weight=8, priority=3, deadline=self.world.now + 1)

    def gangs_until(self, victim: Ticket, limit: int) -> int:
        for count in range(limit):
            self.world.fill()
            if victim.state != "waiting":
                return count
            self.world.finish(self.world.may_finish()[0])
            self.feed()
        return limit


@pytest.mark.parametrize(
    "policy", [Fifo(), Stride(), Priority(age=20), Shortest(stretch=2), RoundRobin()], ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize("place", [range(8), range(2), range(6)])
def test_no_gang_starves(policy: Policy, place: range) -> None:
    adversary = Adversary(policy)
    adversary.feed()
    for _ in range(5):
        victim = adversary.world.offer(0, place, cost=20)
        assert adversary.gangs_until(victim, 1500) < 1500


@pytest.mark.parametrize("policy", [Priority(age=0), Deadline()], ids=lambda p: type(p).__name__)
def test_policies_that_do_not_prevent_it_may_starve_clients(policy: Policy) -> None:
    adversary = Adversary(policy)
    adversary.feed()
    victim = adversary.world.offer(0, range(8), cost=20)
    assert adversary.gangs_until(victim, 400) == 400


# --- independence


@ALL
@examples(25)
@given(rng=randoms, window=windows)
def test_clients_on_disjoint_devices_do_not_affect_each_other(policy: type[Policy], rng: Random, window: int) -> None:
    """The gangs that enter on one half of the island do not depend on the other half."""
    scripts = [
        [
            (rng.choice(("offer", "offer", "finish")), rng.randrange(3), rng.randrange(3), rng.randint(1, 50))
            for _ in range(rng.randint(10, 30))
        ]
        for _ in range(2)
    ]
    turns = [0] * len(scripts[0]) + [1] * len(scripts[1])
    rng.shuffle(turns)

    def order(sides: tuple[int, ...]) -> list[int]:
        world, left = (OrderWorld(policy, window, max_passes=2), [iter(script) for script in scripts])
        for time, side in enumerate(turns):
            if side in sides:
                what, client, place, cost = next(left[side])
                world.now = time * 1000
                at = side * 8
                if what == "offer":
                    places = [range(at, at + 8), range(at, at + 4), range(at + 2, at + 6)]
                    # Client 0 works on both halves, and is compared on each by what it does there.
                    name = client and client + 10 * side
                    world.offer(name, places[place], cost, run=time + 1, weight=1 + client, priority=cost % 3)
                else:
                    ours = [each for each in world.may_finish() if min(world.devices(each)) // 8 == side]
                    if ours:
                        world.finish(ours[0])
                world.fill()
        return [each.run for each in world.order if min(world.devices(each)) < 8]

    assert order((0, 1)) == order((0,))


@pytest.mark.parametrize("places", [{1: range(4), 2: range(4, 8)}, {2: range(4), 1: range(4, 8)}])
def test_no_client_pays_for_the_past_when_domains_merge(places: dict[int, range]) -> None:
    """When domains merge, clients keep no debt from before.

    Two clients had one half of the island each for long, one at a hundredth of the other's weight. Then a third client
    comes for the whole island, and a fourth for one half. They wait for their turns, and shut no other client out.
    """
    world = OrderWorld(Stride, window=1)
    weights = {1: 1, 2: 100, 3: 1, 4: 1}
    turns(world, places, weights, 500)
    served = turns(world, places | {3: range(8), 4: places[1]}, weights, 60)
    assert served[3] >= 2
    assert abs(served[1] - served[4]) <= 2
    assert served[1] >= 4


@pytest.mark.parametrize("first", [0, 4])
def test_debts_stay_when_a_domain_splits(first: int) -> None:
    """Client 1 has just had a long gang on one half when the domains split: it still owes client 2."""
    world = OrderWorld(Stride, window=2)
    other = 4 - first
    world.offer(0, range(8))
    for _ in range(3):
        world.offer(3, range(other, other + 4))
    world.offer(1, range(first, first + 4), cost=60)
    world.fill()
    world.finish(world.flying[0])
    for _ in range(9):
        world.offer(1, range(first, first + 4), cost=10)
        world.offer(2, range(first, first + 4), cost=10)
    before = len(world.order)
    world.drain()
    served = [each.client for each in world.order[before:] if each.client != 3]
    assert served[:5] == [2] * 5


class Latest(Policy):
    """A user's policy in a few lines: last come, first served."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return max(ready, key=lambda ticket: ticket.number)


@examples(20)
@given(script=actions, window=windows)
def test_a_users_policy_obeys_the_same_laws(script: Actions, window: int) -> None:
    world = OrderWorld(Latest, window, max_passes=2)
    play(world, script)
    for ticket in world.waiting:
        world.scheduler.ripen(ticket)
    world.drain()
    assert not world.scheduler.faults

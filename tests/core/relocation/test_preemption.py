"""What clients notice when a policy takes devices of one for another: the one waits, and goes on; see `preemption`."""

from __future__ import annotations

import msgspec
import pytest

from core.controller.config import Config
from core.model.program import SliceSpec
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from core.schedule.policy import Policy, Priority, Ready, SliceUse, Ticket
from tests.core.views.rig import ROWS, Arrays, program, world
from tests.world.script import RunHandle
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import on_the_way, operate, right, used, where

ALONE = program("make", SliceSpec("s", 4, exclusive=True), ROWS)
HALF = program("half", SliceSpec("s", 2, exclusive=True), ROWS)
WIDE = program("wide", SliceSpec("s", 8, exclusive=True), ROWS)
SHARED = program("read", SliceSpec("s", 4), ROWS)
BOUNDS = Config(preempt_keep=2 * S, preempt_longest=60 * S)


def begun(hosts: int = 2, policy: type[Policy] | Policy = Priority, **bounds: int) -> World:
    config = msgspec.structs.replace(BOUNDS, **bounds)
    return world(hosts, policy=policy if isinstance(policy, type) else lambda: policy, config=config)


def ran(made: World, of: Arrays, what: object = ALONE) -> RunHandle:
    run = of.a.submit(what, bytes(32))  # type: ignore[arg-type]
    assert made.run_until(lambda: run.ended)
    assert run.good
    return run


def said(made: World, part: str) -> int:
    return sum(part in text for text in made.told)


# --- a slice gives way, and comes back --------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [ALONE, SHARED], ids=["alone", "shared"])
def test_the_slice_of_a_lower_priority_rests_until_that_of_a_higher_one_is_released(wanted: object) -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    kept = ran(made, low).results[0]
    later = low.a.submit(ALONE, bytes(32))
    ran(made, high, wanted)
    assert later.good, "what had been admitted has run to its end"
    assert on_the_way(made) == ["returning"]
    waits = low.a.submit(ALONE, bytes(32))
    made.run_for(20 * S)
    assert not waits.ended
    assert said(made, "slice 's' of client 'low' is suspended: it gives way to slice 's' of client 'high'") == 1
    high.a.release_slice("s")
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    assert where(made, kept) == [0, 1, 2, 3]
    right(made, low, kept, waits.results[0])
    drain(made)


def test_no_byte_of_it_is_on_a_device_meanwhile() -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    kept = [ran(made, low).results[0] for _ in range(3)]
    high.a.release(*ran(made, high).results)
    made.run_for(S)
    assert used(made) == [0] * 4
    high.a.release_slice("s")
    right(made, low, *kept)
    drain(made)


def test_it_moves_if_there_is_room_elsewhere() -> None:
    """The one that gives way may be on any island; the other one asks for that on which it is."""
    islands = tuple(Island(name=name, hosts=2, devices_per_host=2) for name in "ij")
    made = World(Cluster(islands), seed=7, policy=Priority, config=BOUNDS)
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    kept = ran(made, low).results[0]
    assert where(made, kept) == [0, 1, 2, 3]
    ran(made, high, program("make", SliceSpec("s", 4, exclusive=True, island="i"), ROWS))
    assert where(made, kept) == [4, 5, 6, 7]
    assert on_the_way(made) == []
    assert said(made, "slice 's' of client 'low' moves: it gives way to slice 's' of client 'high'") == 1
    right(made, low, kept)
    drain(made)


def test_only_as_many_give_way_as_must_and_the_least_urgent_first() -> None:
    made = begun()
    names = ("first", "second")
    low = [Arrays(made.client(name, priority=2 - at)) for at, name in enumerate(names)]
    for each in low:
        ran(made, each, HALF)
    high = Arrays(made.client("high", priority=5))
    ran(made, high, HALF)
    assert [each.session.name for each in made.machine.relocation.under_way.values()] == ["second"]
    drain(made)


def test_nobody_gives_way_to_its_equal_nor_to_a_lower_one_nor_under_another_policy() -> None:
    for policy, priority in ((Priority, 1), (Priority, 0), (Priority(preempt=0), 5)):
        made = begun(policy=policy)
        holder, other = Arrays(made.client("holder", priority=1)), Arrays(made.client("other", priority=priority))
        ran(made, holder)
        waits = other.a.submit(ALONE, bytes(32))
        made.run_for(20 * S)
        assert not waits.ended
        assert on_the_way(made) == []
        holder.a.release_slice("s")
        assert made.run()
        assert waits.good
        drain(made)


def test_slices_wait_in_the_order_of_priorities_whoever_came_first() -> None:
    made = begun()
    holder = Arrays(made.client("holder", priority=9))
    ran(made, holder)
    clients = {name: Arrays(made.client(name, priority=at)) for at, name in ((1, "low"), (2, "high"))}
    runs = {}
    for name, each in clients.items():
        runs[name] = each.a.submit(ALONE, bytes(32))
        made.run_for(S)
    holder.a.release_slice("s")
    assert made.run_until(lambda: runs["high"].ended)
    assert not runs["low"].ended
    clients["high"].a.release_slice("s")
    drain(made)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_slice_that_has_come_back_keeps_its_devices_for_a_while_and_who_waits_for_it_is_reported_once() -> None:
    made = begun()
    low = Arrays(made.client("low"))
    ran(made, low)
    high = Arrays(made.client("high", priority=1))
    for turn in range(3):
        asked = made.now
        ran(made, high)
        assert (made.now - asked > S) == (turn > 0)
        high.a.release_slice("s")
        assert made.run_until(lambda: on_the_way(made) == [])
    assert (
        said(made, "waits for slice 's' of client 'low', which has given way before: it keeps its devices for 2 s") == 2
    )
    drain(made)


def test_a_slice_that_has_been_away_for_too_long_comes_first_and_then_gives_way_again() -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    ran(made, low)
    ran(made, high)
    since = made.now
    waits = low.a.submit(ALONE, bytes(32))
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    assert 59 * S < made.now - since < 62 * S
    again = high.a.submit(ALONE, bytes(32))
    assert made.run_until(lambda: again.ended)
    assert again.good
    assert made.now - since < 66 * S, "the other one kept its devices for 2 s"
    drain(made)


def test_many_of_many_priorities_all_come_to_their_turn() -> None:
    made = begun(preempt_longest=5 * S)
    runs = []
    for at in range(6):
        each = Arrays(made.client(f"c{at}", priority=at))
        runs.append(each.a.submit(ALONE, bytes(32)))
        made.run_for(100 * MS)
    assert made.run_until(lambda: all(run.ended for run in runs))
    assert all(run.good for run in runs)
    drain(made)


# --- what else may happen ---------------------------------------------------------------------------------------------


def test_the_other_one_is_released_before_it_has_anything() -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    kept = ran(made, low).results[0]
    waits = high.a.submit(ALONE, bytes(32))
    assert made.run_until(lambda: on_the_way(made) == ["spilling"])
    high.a.cancel(waits)
    high.a.release_slice("s")
    assert made.run()
    assert on_the_way(made) == []
    right(made, low, kept)
    drain(made)


def test_an_operator_may_let_it_rest_for_good_and_nobody_else_can_bring_it_back_early() -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    ran(made, low)
    ran(made, high)
    assert operate(made, "resume") == "slice 's' is not suspended"
    waits = high.a.submit(ALONE, bytes(32))
    assert made.run()
    assert waits.good
    assert operate(made, "suspend") == ""
    high.a.release_slice("s")
    made.run_for(700 * S)
    assert on_the_way(made) == ["parked"]
    assert operate(made, "resume") == ""
    assert made.run()
    assert on_the_way(made) == []
    drain(made)


def test_a_client_that_rests_takes_nothing_from_others() -> None:
    made = begun()
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    ran(made, low)
    made.controller.feed(e.OperateSlices(2, "suspend"))
    waits = high.a.submit(ALONE, bytes(32))
    made.run_for(5 * S)
    assert on_the_way(made) == []
    made.controller.feed(e.OperateSlices(2, "resume"))
    assert made.run()
    assert waits.good
    drain(made)


class Wrong(Priority):
    def slice_rank(self, wanted: SliceUse) -> int:
        raise KeyError(wanted.name)


class Small(Policy):
    """The smaller slice is the more urgent one, as in a user's own policy."""

    preempts = True

    def slice_rank(self, wanted: SliceUse) -> int:
        return wanted.devices

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()


def test_a_policy_may_rank_by_anything_and_one_that_raises_is_replaced_by_name() -> None:
    made = begun(policy=Small)
    large, small = Arrays(made.client("large")), Arrays(made.client("small"))
    ran(made, large)
    ran(made, small, HALF)
    assert [each.session.name for each in made.machine.relocation.under_way.values()] == ["large"]
    drain(made)
    made = begun(policy=Wrong)
    ran(made, Arrays(made.client("a")))
    drain(made)

"""Examples for one island's scheduler: window, passing, late inputs, withdrawal. Its laws are in test_shares."""

from __future__ import annotations

import pytest

from core.model import spans
from core.model.atoms import Atoms
from core.model.errors import Illegal
from core.schedule.contention import Window
from core.schedule.policy import Fifo, Priority, Stride
from core.schedule.scheduler import Scheduler, Ticket

from .order_world import OrderWorld

ALL, LEFT, RIGHT = range(8), range(4), range(4, 8)


def reasons(world: OrderWorld) -> list[tuple[int, str]]:
    return [(wait.ticket.client, wait.why) for wait in world.scheduler.waiting()]


# --- the window


def test_short_gangs_run_further_ahead_and_long_ones_do_not() -> None:
    window = Window(2, span=50, most=4)
    world = OrderWorld(Fifo, window)
    short = [world.offer(0, ALL, cost=10) for _ in range(6)]
    assert world.fill() == short[:4], "so many at most, though they take 40 of 50"
    world.finish(short[0])
    assert world.fill() == short[4:5]
    world = OrderWorld(Fifo, window)
    long = [world.offer(0, ALL, cost=30) for _ in range(4)]
    assert world.fill() == long[:2], "two are ahead in any case, and take 60"
    world.finish(long[0])
    assert world.fill() == long[2:3]
    assert "2 gangs are ahead" in world.scheduler.waiting()[0].text


def test_the_time_ahead_is_counted_for_each_device() -> None:
    world = OrderWorld(Fifo, Window(1, span=50, most=4))
    wide = [world.offer(0, ALL, cost=30) for _ in range(2)]
    assert world.fill() == wide
    part, other = world.offer(1, range(2, 5), cost=5), world.offer(1, range(4, 8), cost=5)
    assert world.fill() == []
    world.finish(wide[0])
    assert world.fill() == [part, other]


def test_devices_are_counted_for_the_policy() -> None:
    world = OrderWorld(Fifo)
    assert world.offer(0, [1, 2, 5]).devices == 3


def test_schedulers_of_several_islands_share_the_atoms() -> None:
    atoms = Atoms()
    one, other = (Scheduler(atoms, Fifo, 1, 0) for _ in range(2))
    key = atoms.intern_devices(spans.of(range(8)))
    tickets = [Ticket(run=run, step=0, client=0, place=key, cost=1) for run in (1, 2)]
    one.offer(tickets[0], 0)
    assert one.pick(0) is tickets[0]
    atoms.intern_devices(spans.of(range(4)))
    other.offer(tickets[1], 0)
    assert other.pick(0) is tickets[1]


# --- within a run


def test_within_a_run_the_step_that_was_traced_first_goes_first() -> None:
    world = OrderWorld(Fifo, window=4)
    late, early = world.offer(0, ALL, run=7, step=5), world.offer(0, ALL, run=7, step=2)
    assert world.fill() == [early, late]


# --- passing


def test_narrow_gangs_may_pass_a_blocked_wide_one_up_to_the_bound() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=2)
    stuck = world.offer(0, LEFT, cost=1000)
    assert world.fill() == [stuck]
    wide = world.offer(1, ALL)
    narrow = [world.offer(2, RIGHT) for _ in range(4)]
    for passing in narrow[:2]:
        assert world.fill() == [passing]
        world.finish(passing)
    assert world.fill() == []
    assert reasons(world) == [(1, "window"), (2, "passed"), (2, "passed")]
    world.finish(stuck)
    assert world.fill() == [wide]
    world.finish(wide)
    assert world.fill() == [narrow[2]]


def test_a_place_that_was_served_may_be_passed_again() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=1)
    world.offer(0, LEFT, cost=1000)
    world.fill()
    wide = [world.offer(1, ALL) for _ in range(3)]
    for each in wide:
        passing = world.offer(2, RIGHT)
        assert world.fill() == [passing]
        world.finish(passing)
        world.finish(world.flying[0])
        assert world.fill() == [each]
        older = world.offer(0, LEFT, submitted=-1)  # it blocks the left half again when the wide gang has ended
        world.finish(each)
        assert world.fill() == [older]


def test_a_passed_gang_that_was_withdrawn_no_longer_counts() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=1)
    world.offer(0, LEFT)
    world.fill()
    for _ in range(3):
        wide = world.offer(1, ALL)
        passing = world.offer(2, RIGHT)
        assert world.fill() == [passing]
        world.finish(passing)
        world.waiting.remove(wide)
        world.scheduler.withdraw(wide.run)


def test_a_gang_that_waits_for_a_passed_one_is_not_passed_itself() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=0)
    busy = world.offer(0, [0])
    world.fill()
    first, second, third = world.offer(1, [0, 1]), world.offer(2, [1, 2]), world.offer(3, [2])
    assert world.fill() == []
    world.finish(busy)
    assert world.fill() == [first]
    world.finish(first)
    assert world.fill() == [second]
    assert third.state == "waiting"


def test_a_gang_that_shares_no_device_with_a_blocked_one_does_not_wait_for_it() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=0)
    world.offer(0, [0])
    world.fill()
    world.offer(1, range(2))
    barred, free = world.offer(2, [1]), world.offer(3, [2])
    assert world.fill() == [free]
    assert (2, "passed") in reasons(world)
    assert barred.state == "waiting"


def test_a_gang_that_the_policy_prefers_does_not_count_as_passing() -> None:
    """A high priority counts, however long a wide gang of low priority is blocked."""
    world = OrderWorld(Priority(age=0), window=1, max_passes=1)
    world.offer(0, LEFT, cost=1000)
    world.fill()
    wide = world.offer(1, ALL, priority=0)
    for _ in range(10):
        high = world.offer(2, RIGHT, priority=1)
        assert world.fill() == [high]
        world.finish(high)
    assert wide.state == "waiting"


def test_a_gang_that_was_passed_too_often_and_is_withdrawn_lets_the_others_enter() -> None:
    world = OrderWorld(Fifo, window=1, max_passes=0)
    world.offer(0, LEFT)
    world.fill()
    wide = world.offer(1, ALL)
    narrow = world.offer(2, RIGHT)
    assert world.fill() == []
    world.waiting.remove(wide)
    assert world.scheduler.withdraw(wide.run) == 1
    assert world.fill() == [narrow]


# --- late inputs


def test_by_default_late_gangs_enter_only_where_no_other_gang_is_ready() -> None:
    world = OrderWorld(Fifo, window=1)
    late, ready = world.offer(0, ALL, ripe=False), world.offer(1, LEFT)
    assert world.fill() == [ready]
    assert reasons(world) == [(0, "window")]
    world.finish(ready)
    world.now += world.quiet
    assert world.fill() == [late]


def test_a_late_gang_waits_for_a_ready_one_that_waits_for_room() -> None:
    world = OrderWorld(Fifo, window=1)
    busy = world.offer(0, LEFT)
    world.fill()
    wide, late = world.offer(1, ALL), world.offer(2, RIGHT, ripe=False)
    assert world.fill() == []
    assert reasons(world) == [(1, "window"), (2, "inputs")]
    world.finish(busy)
    assert world.fill() == [wide]
    world.finish(wide)
    world.now += world.quiet
    assert world.fill() == [late]


def test_a_late_gang_waits_where_another_client_was_just_now() -> None:
    world = OrderWorld(Fifo, quiet=100)
    gang = world.offer(1, LEFT)
    assert world.fill() == [gang]
    world.finish(gang)
    other, own = world.offer(2, ALL, ripe=False), world.offer(1, LEFT, ripe=False)
    assert world.fill() == [own]
    assert reasons(world) == [(2, "inputs")]
    world.now += 99
    assert world.fill() == []
    world.now += 1
    assert world.fill() == [other]


def test_late_gangs_enter_at_once_if_early_is_always_and_not_at_all_if_never() -> None:
    always, never = OrderWorld(Fifo, early="always"), OrderWorld(Fifo, early="never")
    late = [world.offer(0, ALL, ripe=False) for world in (always, never)]
    always.offer(1, ALL)
    assert always.fill()[0] is late[0]
    assert never.fill() == []
    assert reasons(never) == [(0, "inputs")]
    never.scheduler.ripen(late[1])
    assert never.fill() == [late[1]]


def test_a_ripened_gang_takes_the_position_of_its_age() -> None:
    world = OrderWorld(Fifo, window=1)
    world.offer(0, ALL)
    world.fill()
    late, ready = world.offer(1, ALL, ripe=False), world.offer(1, ALL)
    world.scheduler.ripen(late)
    world.scheduler.ripen(late)  # a second time changes nothing
    world.finish(world.flying[0])
    assert world.fill() == [late]
    assert ready.state == "waiting"


def test_a_gang_may_ripen_when_it_has_entered_or_was_withdrawn() -> None:
    world = OrderWorld(Fifo)
    late = world.offer(0, ALL, ripe=False)
    assert world.fill() == [late]
    world.scheduler.ripen(late)
    other = world.offer(0, ALL, ripe=False)
    assert world.scheduler.withdraw(other.run) == 1
    world.scheduler.ripen(other)
    world.waiting.clear()
    assert world.fill() == []


# --- what the controller may do


def test_nothing_is_picked_while_paused() -> None:
    world = OrderWorld(Fifo)
    gang = world.offer(0, ALL)
    world.scheduler.paused = True
    assert world.scheduler.pick(0) is None
    assert reasons(world) == [(0, "paused")]
    world.scheduler.paused = False
    assert world.fill() == [gang]


def test_a_withdrawn_run_leaves_what_has_entered() -> None:
    world = OrderWorld(Fifo, window=1)
    gangs = [world.offer(0, ALL, run=3, step=step) for step in range(3)]
    other = world.offer(0, ALL, run=4)
    assert world.fill() == gangs[:1]
    assert world.scheduler.withdraw(3) == 2
    assert world.scheduler.withdraw(3) == 0
    world.waiting = [other]
    world.finish(gangs[0])
    assert world.fill() == [other]


def test_a_withdrawn_run_may_come_back_elsewhere() -> None:
    world = OrderWorld(Fifo)
    gang = world.offer(0, LEFT)
    world.scheduler.withdraw(gang.run)
    gang.place = world.atoms.intern_devices(spans.of(range(5)))
    world.scheduler.offer(gang, 5)
    assert (gang.devices, gang.since) == (5, 5)
    assert world.scheduler.pick(5) is gang


def test_when_a_client_goes_its_gangs_that_have_not_entered_go_too() -> None:
    world = OrderWorld(Stride, window=1)
    entered = world.offer(0, ALL)
    world.fill()
    for _ in range(3):
        world.offer(0, ALL)
    other = world.offer(1, LEFT)
    assert world.scheduler.client_gone(0) == 3
    assert isinstance(world.scheduler.policy, Stride)
    assert [list(clock.tags) for clock in world.scheduler.policy._clocks.values()] == [[1]]
    world.waiting = [other]
    world.finish(entered)
    assert world.fill() == [other]


def test_illegal_events_raise_and_change_nothing() -> None:
    world = OrderWorld(Fifo, window=1)
    scheduler = world.scheduler
    gang, other = world.offer(0, ALL), world.offer(0, ALL)
    with pytest.raises(Illegal, match="offer of a gang"):
        scheduler.offer(gang, 0)
    with pytest.raises(Illegal, match="that is waiting"):
        scheduler.finished(gang, 0)
    assert world.fill() == [gang]
    with pytest.raises(Illegal, match="that is entered"):
        scheduler.offer(gang, 0)
    world.finish(gang)
    with pytest.raises(Illegal, match=r"finish of a gang \(run 1, step 0\) that is over"):
        scheduler.finished(gang, 0)
    assert world.fill() == [other]
    assert scheduler.pick(0) is None


@pytest.mark.parametrize(("window", "passes"), [(0, 1), (1, -1)])
def test_a_window_that_admits_nothing_is_refused(window: int, passes: int) -> None:
    with pytest.raises(ValueError, match="window"):
        Scheduler(Atoms(), Fifo, window, passes)


def test_the_scheduler_says_what_waits_and_why() -> None:
    world = OrderWorld(Fifo, window=1)
    world.offer(0, [0, 1, 2, 5])
    world.fill()
    world.offer(1, range(8))
    world.offer(2, [7])
    texts = [wait.text for wait in world.scheduler.waiting()]
    assert texts == ["1 gang is ahead on devices 0-2, 5", "it may enter, and others go first"]

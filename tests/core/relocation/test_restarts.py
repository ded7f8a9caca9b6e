"""A controller that is started again finds what was suspended as it was: slices, their arrays, and views of them."""

from __future__ import annotations

import msgspec
import pytest

from core.model.place import line
from core.schedule.policy import Priority
from tests.core.views.rig import PAIR, ROWS, WHOLE, Arrays, begun, one, world
from tests.world.test_world import drain
from tests.world.timing import MS, S

from .test_moves import ALONE, on_the_way, operate, right, used


def test_what_was_suspended_still_is_and_others_have_the_devices_and_it_comes_back() -> None:
    made, a = begun()
    mine = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    made.restart_controller()
    made.run_for(S)
    assert on_the_way(made) == ["parked"]
    b = made.client("b")
    other = b.submit(ALONE, bytes(32))
    assert made.run()
    assert other.good
    b.release(*other.results)
    run = a.a.submit(ALONE, bytes(32))
    made.run_for(100 * MS)
    assert not run.ended
    assert not any(used(made))
    b.release_slice("s")
    a.a.relocate("resume")
    assert made.run()
    assert run.good
    right(made, a, mine, run.results[0])
    drain(made)


def test_views_of_arrays_that_left_the_devices_are_found_again_and_come_back_with_them() -> None:
    made, a = begun()
    pairs = a.four()
    view = a.joined(*pairs)
    part = a.shard(view, 2)
    a.a.release(*pairs)
    assert made.run()
    before = used(made)
    a.a.relocate("suspend")
    assert made.run()
    for _ in range(2):
        made.restart_controller()
        made.run_for(S)
    assert not any(used(made))
    assert view.blame is part.blame is None
    a.a.relocate("resume")
    assert made.run()
    assert used(made) == before
    right(made, a, view, part)
    a.a.relocate("suspend")  # views from before a restart go again
    assert made.run()
    assert not any(used(made))
    a.a.relocate("resume")
    right(made, a, view, part)
    drain(made)


def test_views_come_back_though_the_next_start_is_not_told_that_anything_was_suspended() -> None:
    made, a = begun()
    view = a.joined(*a.four())
    part = a.shard(view, 2)
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    made.suspended.clear()
    made.restart_controller()
    assert made.run_until(lambda: set(on_the_way(made)) == {"filling"})
    got = a.a.get(view)
    made.run_for(S)
    assert not on_the_way(made)
    assert used(made) == [8] * 4, "what no view needs comes when it is needed"
    assert got.right
    right(made, a, view, part)
    drain(made)


def test_so_do_views_that_lie_elsewhere_and_share_an_array_with_another() -> None:
    made, a = begun()
    pairs = a.four()
    view = a.joined(*pairs)
    part = a.a.view(PAIR, one(0), (pairs[0], 0))
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    made.suspended.clear()
    made.restart_controller()
    made.run_for(S)
    assert not on_the_way(made)
    assert not made.machine.state.asleep
    right(made, a, view, part)
    drain(made)


@pytest.mark.parametrize("after", range(0, 4 * MS, MS // 4))
def test_a_restart_while_arrays_leave_the_devices_or_come_back_loses_nothing(after: int) -> None:
    made, a = begun()
    kept = [a.whole() for _ in range(3)]
    view = a.joined(*a.four())
    assert made.run()
    for action in ("suspend", "resume"):
        a.a.relocate(action)
        made.run_for(after)
        made.restart_controller()
        made.run_for(S)
        assert on_the_way(made) in ([], ["parked"])
    operate(made, "resume")
    made.run_for(S)
    assert not on_the_way(made)
    right(made, a, *kept, view, a.run("read", WHOLE, bytes(32), ROWS).results[0])
    drain(made)


def test_a_client_all_of_whose_slices_are_suspended_is_so_with_those_that_it_binds_later() -> None:
    made, a = begun()
    assert made.run()
    assert operate(made, "suspend") == ""
    made.restart_controller()
    made.run_for(S)
    later = a.run("read", WHOLE, bytes(32), ROWS)
    made.run_for(S)
    assert not later.ended
    assert on_the_way(made) == ["parked"]
    assert operate(made, "resume") == ""
    assert made.run()
    assert later.good
    drain(made)


def test_what_was_suspended_of_a_client_that_does_not_come_back_is_forgotten() -> None:
    made, a = begun()
    a.whole()
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    made.crash_client("a")
    made.restart_controller()
    made.run_for(3 * S)
    assert made.suspended[made.past] != ()
    made.run_for(100 * S)
    assert made.suspended[made.past] == ()
    assert made.machine.suspensions.told == ()
    made.at_rest()


def test_a_place_that_is_not_in_this_cluster_any_more_is_left_out() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    known = made.suspended[made.past]
    made.suspended[made.past] = tuple(
        msgspec.structs.replace(each, place=each.place and line(0, 100, 4), rests=False) for each in known
    )
    made.restart_controller()
    made.run_for(S)
    assert not on_the_way(made), "its arrays come when they are needed"
    right(made, a, kept)
    drain(made)


@pytest.mark.parametrize("phase", ["spilling", "returning"])
def test_a_slice_that_gave_way_to_another_comes_back_by_itself_after_a_restart(phase: str) -> None:
    """While it gives way, and while it waits for devices."""
    made = world(policy=Priority)
    low, high = Arrays(made.client("low")), Arrays(made.client("high", priority=1))
    kept = low.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    taken = high.a.submit(ALONE, bytes(32))
    assert made.run_until(lambda: on_the_way(made) == [phase])
    made.run_for(MS)
    made.restart_controller()
    made.run_for(S)
    again = high.a.submit(ALONE, bytes(32))
    made.run_for(S)
    assert again.good
    assert taken.ended
    high.a.release_slice("s")
    assert made.run_until(lambda: not on_the_way(made))
    right(made, low, kept)
    drain(made)

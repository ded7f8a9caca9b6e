"""Moves, suspensions and drains that meet something else: a release, a lost host, a second slice, a lack of room."""

from __future__ import annotations

from core.model import spans
from core.model.program import SliceSpec
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from tests.core.build import Build
from tests.core.views.rig import ROWS, WHOLE, Arrays, begun, program
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import ALONE, on_the_way, operate, right, used, where


def loads(made: World) -> list[int]:
    return [made.machine.resources.load(device) for device in range(made.cluster.devices)]


def test_a_slice_that_was_released_is_not_held_and_not_resumed() -> None:
    """Both in one message."""
    made, a = begun()
    kept = a.whole()
    assert made.run()
    a.a.relocate("suspend", "s")
    assert made.run()
    a.a.release_slice("s")
    a.a.relocate("resume", "s")
    right(made, a, kept)
    assert not on_the_way(made)
    drain(made)


def test_a_client_that_leaves_while_its_slice_moves_leaves_nothing() -> None:
    made, a = begun(hosts=4)
    a.whole()
    assert made.run()
    assert operate(made, "move") == ""
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    a.a.close()
    assert made.run()
    assert not on_the_way(made)
    assert not made.machine.relocation.failed
    made.at_rest()
    assert not any(used(made))


def test_another_slice_of_the_same_name_is_another_one() -> None:
    made, a = begun()
    kept = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend", "s")
    assert made.run()
    again = a.a.submit(ALONE, bytes(32))
    a.a.release_slice("s")
    a.a.relocate("resume", "s")
    assert made.run()
    assert again.good
    assert loads(made) == [1, 1, 1, 1]
    a.a.release_slice("s")
    right(made, a, kept)
    assert loads(made) == [0, 0, 0, 0]
    drain(made)


def test_what_memory_had_no_room_for_before_does_not_come_back_together() -> None:
    made, a = begun(memory=40)
    kept = [a.whole() for _ in range(6)]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    assert not any(used(made))
    a.a.relocate("resume")
    assert made.run()
    right(made, a, *kept)
    drain(made)


def test_a_slice_whose_move_fails_while_it_is_suspended_is_suspended_where_it_was() -> None:
    made, a = begun(hosts=4)
    kept = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    assert operate(made, "move") == ""
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    assert operate(made, "resume") == ""
    made.crash_host(2)
    made.run_for(30 * S)
    assert not on_the_way(made)
    assert loads(made)[:4] == [1, 1, 1, 1], "it has its devices alone again"
    right(made, a, kept)
    drain(made)


def test_a_target_that_is_lost_takes_nothing_from_where_the_slice_is() -> None:
    made, a = begun(hosts=3)
    kept = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    assert operate(made, "move", away=spans.one(0)) == ""
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    made.crash_host(2)
    made.run_for(30 * S)
    b = made.client("b")
    other = b.submit(program("two", SliceSpec("t", 4), ROWS), bytes(32))
    made.run_for(S)
    assert not other.ended, "devices that overlapped the target are still held alone"
    a.a.release_slice("s")
    assert made.run()
    assert other.good
    right(made, a, kept)
    drain(made)


def test_a_slice_that_is_bound_on_devices_of_a_suspended_one_is_awake() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    a.a.relocate("suspend", "s")
    assert made.run()
    first = a.a.submit(program("mine", SliceSpec("u", 4), ROWS), bytes(32))
    got = a.a.get(first.results[0])
    assert made.run()
    assert first.good
    assert got.right
    a.a.relocate("resume", "s")
    right(made, a, kept)
    drain(made)


def test_one_slice_may_be_resumed_of_a_client_that_was_suspended_as_a_whole() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    assert operate(made, "suspend") == ""
    made.run_for(S)
    assert operate(made, "resume", slice="s") == ""
    run = a.run("read", WHOLE, kept, ROWS)
    assert made.run()
    assert run.good
    drain(made)


def test_a_suspension_delays_no_other_client_that_waits_for_memory() -> None:
    made, a = begun(memory=20)
    a.whole()
    b = Arrays(made.client("b"))
    assert made.run()
    other = SliceSpec("s", 4)
    big = b.a.submit(program("big", other, ROWS, temp=16), bytes(32))
    for turn in range(400):
        a.a.relocate("suspend" if turn % 2 == 0 else "resume")
        made.run_for(50 * MS)
    assert big.ended
    assert made.run()
    drain(made)


# --- drains ----------------------------------------------------------------------------------------------------------


def test_a_drain_goes_on_when_there_is_room_for_what_is_left() -> None:
    made, a = begun(hosts=3)
    kept = a.whole()
    assert made.run()
    made.controller.feed(e.OperateHost(2, "cordon"))
    made.controller.feed(e.OperateHost(1, "drain"))
    made.run_for(S)
    assert made.hosts[1].alive
    made.controller.feed(e.OperateHost(2, "uncordon"))
    made.run_for(S)
    assert made.machine.members(0) == ((0, 1), (2, 3))
    right(made, a, kept)
    drain(made)


def test_a_move_that_fails_is_tried_again_now_and_then() -> None:
    islands = (
        Island(name="i", hosts=2, devices_per_host=2, memory=40),
        Island(name="j", hosts=2, devices_per_host=2, memory=8),
    )
    made = World(Cluster(islands), seed=7)
    a = Arrays(made.client("a"))
    kept = [a.whole() for _ in range(3)]
    assert made.run()
    assert where(made, kept[0]) == [0, 1, 2, 3]
    made.controller.feed(e.OperateHost(0, "drain"))
    b = Arrays(made.client("b"))
    for _ in range(100):
        b.run("make", SliceSpec("s", 4, island="i"), bytes(32), ROWS)
        made.run_for(100 * MS)
    tries = [text for text in made.told if "was not moved" in text]
    assert 2 <= len(tries) <= 6, "at first after a second, then more and more rarely"
    (found,) = made.machine.snapshot().drains
    assert "slice 's' was not moved: [no-memory]" in found.waits
    right(made, a, *kept)
    drain(made)


def test_an_array_that_is_held_by_a_second_name_alone_moves_away() -> None:
    made, a = begun(hosts=4)
    kept = a.whole()
    build = Build("same")
    build.slices = [WHOLE]
    second = a.a.submit(build.program(build.arg("s", 8, split="0")), kept).results[0]
    assert made.run()
    a.a.release(kept)
    a.a.release_slice("s")
    made.controller.feed(e.OperateHost(0, "drain"))
    made.run_for(S)
    assert not made.hosts[0].alive
    right(made, a, second)
    assert not any(loads(made)), "what stood for its slice is gone"
    drain(made)


def test_arrays_that_come_back_after_their_slice_was_released_go_with_no_other_before_they_are_back() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    operate(made, "suspend")
    assert made.run_until(lambda: on_the_way(made) == ["spilling"])
    made.controller.feed(e.OperateHost(0, "drain"))
    a.a.release_slice("s")
    assert made.run_until(lambda: on_the_way(made) == ["filling"])
    assert made.run_until(lambda: on_the_way(made) == ["parked"])
    assert not any(used(made)), "they have gone again, with what stands for their slice"
    operate(made, "resume")
    right(made, a, kept)
    drain(made)


def test_two_slices_at_one_place_of_which_each_was_suspended_by_itself_have_each_its_own_arrays() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    a.a.relocate("suspend", "s")
    assert made.run()
    other = a.a.submit(program("mine", SliceSpec("u", 4), ROWS), bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend", "u")
    assert made.run()
    assert not any(used(made))
    a.a.relocate("resume", "u")
    reads = a.run("theirs", SliceSpec("u", 4), kept, ROWS)
    made.run_for(S)
    assert not reads.ended, "it needs an array of the slice that rests"
    assert on_the_way(made) == ["parked"]
    a.a.relocate("resume", "s")
    assert made.run()
    assert reads.good
    right(made, a, kept, other)
    drain(made)

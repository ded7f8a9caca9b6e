"""What clients notice when their slices are moved, suspended and resumed: that it takes a while, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from core.model import spans
from core.model.program import SliceSpec
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from tests.core.views.rig import ROWS, WHOLE, Arrays, begun, program
from tests.world.script import Handle
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

ALONE = program("make", SliceSpec("s", 4, exclusive=True), ROWS)


def where(made: World, handle: Handle, client: int = 1) -> list[int]:
    """The devices on which an array lies."""
    for buffer in made.machine.buffers:
        if buffer.client == client and buffer.name == handle.name:
            return sorted(buffer.layout.place.devices())
    raise AssertionError(f"there is no buffer {handle.name}")


def used(made: World) -> list[int]:
    """Bytes on each device."""
    return [bytes_ for host in made.fabric.hosts.values() for bytes_ in host.used.values()]


def operate(made: World, action: Any, **more: Any) -> str:
    """Returns why nothing of it has begun."""
    made.controller.feed(e.OperateSlices(1, action, **more))
    return made.answer


def on_the_way(made: World) -> list[str]:
    return [each.phase for each in made.machine.relocation.under_way.values()]


def right(made: World, a: Arrays, *handles: Handle) -> None:
    got = [a.a.get(handle) for handle in handles]
    assert made.run()
    assert all(each.right for each in got)


# --- to other devices ------------------------------------------------------------------------------------------------


def test_arrays_keep_their_names_and_contents_and_new_results_lie_where_the_slice_is_now() -> None:
    made, a = begun(hosts=4)
    kept, gone = a.whole(), a.whole()
    assert made.run()
    assert where(made, kept) == [0, 1, 2, 3]
    assert operate(made, "move") == ""
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    a.a.release(gone)
    made.run_for(S)
    later = a.run("read", WHOLE, kept, ROWS)
    right(made, a, kept, later.results[0])
    assert where(made, kept) == where(made, later.results[0]) == [4, 5, 6, 7]
    assert used(made) == [0, 0, 0, 0, 16, 16, 16, 16]
    drain(made)


def test_what_has_been_called_before_runs_to_its_end_and_what_is_called_meanwhile_waits_and_says_so() -> None:
    made, a = begun(hosts=4)
    first = a.whole()
    assert made.run()
    chain = [a.run("read", WHOLE, first, ROWS)]
    a.a.relocate("move")
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    chain += [a.run("read", WHOLE, chain[0].results[0], ROWS), a.run("read", WHOLE, first, ROWS)]
    assert made.run()
    assert all(run.good for run in chain)
    right(made, a, *[run.results[0] for run in chain])
    assert any("slice 's' is being moved" in text for text in a.a.told)
    drain(made)


def test_a_run_that_waits_and_to_which_an_array_was_donated_takes_the_copy() -> None:
    made, a = begun(hosts=4)
    given = a.whole()
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    taker = a.run("take", WHOLE, given, ROWS, donate=True)
    made.run_for(5 * MS)
    assert not taker.ended
    assert operate(made, "move") == ""
    made.run_for(5 * MS)
    a.a.relocate("resume")
    assert made.run()
    assert taker.good
    assert max(used(made)) == 8, "it has taken over the memory"
    right(made, a, taker.results[0])
    drain(made)


def test_views_are_views_of_the_copies_and_take_no_memory() -> None:
    made, a = begun(hosts=4)
    pairs = a.four()
    view = a.joined(*pairs)
    assert made.run()
    a.a.release(*pairs[1:])
    assert made.run()
    before = sum(used(made))
    assert operate(made, "move") == ""
    made.run_for(S)
    assert sum(used(made)) == before
    assert where(made, view) == [4, 5, 6, 7]
    right(made, a, view, pairs[0])
    drain(made)


def test_nothing_moves_when_there_is_no_room_at_the_other_end() -> None:
    island = Island(name="i", hosts=4, devices_per_host=2, memory=40, host_memory=0)
    made = World(Cluster((island,)), seed=7)
    a, b = Arrays(made.client("a")), Arrays(made.client("b"))
    kept = [a.whole() for _ in range(3)]
    assert made.run()
    filled = [b.whole() for _ in range(3)]
    assert made.run()
    a.a.relocate("move")
    assert made.run()
    assert a.a.refusals[-1].blame.cause.startswith("slice 's' was not moved: [no-memory]")
    assert used(made) == [24] * 8, "all is as it was"
    right(made, a, *kept)
    right(made, b, *filled)
    drain(made)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_host_is_lost_at_either_end_while_arrays_are_copied(lost: int) -> None:
    """At the source they are lost, as ever; at the target they stay where they were."""
    made, a = begun(hosts=6)
    kept = a.whole()
    assert made.run()
    assert operate(made, "move", away=spans.of([0, 1, 4, 5])) == ""
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    made.crash_host(lost)
    made.run_for(S)
    later = a.whole()
    assert made.run()
    if lost:
        right(made, a, kept, later)
    else:
        assert kept.blame is not None
        assert kept.blame.code == "host-lost"
        right(made, a, later)
    assert not made.machine.relocation.under_way
    drain(made)


def test_what_cannot_be_moved_is_refused_by_name() -> None:
    made, a = begun()
    assert operate(made, "move") == "there is no client 1"
    assert made.run()
    assert operate(made, "move") == "client 1 has no slices"
    a.whole()
    assert made.run()
    assert operate(made, "move", slice="t") == "client 1 has no slice 't'"
    assert operate(made, "move") == "slice 's' finds no other devices"
    assert operate(made, "resume") == "slice 's' is not suspended"
    a.a.relocate("move", island="nowhere")
    assert made.run()
    assert a.a.refusals[-1].blame.cause == "no island 'nowhere'; there is: 'i'"
    drain(made)


# --- to host memory and back -----------------------------------------------------------------------------------------


def test_a_suspended_client_has_no_byte_on_a_device_and_others_may_have_its_devices() -> None:
    made, a = begun()
    mine = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    b = made.client("b")
    other = b.submit(ALONE, bytes(32))
    made.run_for(50 * MS)
    assert not other.ended, "the slice has its devices alone"
    a.a.relocate("suspend")
    assert made.run()
    assert other.good
    b.release(*other.results)
    assert made.run()
    assert not any(used(made))
    a.a.relocate("resume")
    made.run_for(50 * MS)
    assert not any(used(made)), "the other has them now"
    b.release_slice("s")
    assert made.run()
    assert used(made) == [8] * 4
    right(made, a, mine)
    drain(made)


def test_what_a_suspended_client_calls_waits_until_it_is_resumed() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    a.a.relocate("suspend")
    run, got = a.run("read", WHOLE, kept, ROWS), a.a.get(kept)
    put, view = a.a.put(ROWS, WHOLE), a.shard(kept, 1)
    made.run_for(100 * MS)
    assert not any((run.ended, got.over, put.ready, view.ready))
    assert not any(used(made))
    a.a.relocate("resume")
    assert made.run()
    assert run.good
    assert got.right
    right(made, a, put, view, run.results[0])
    drain(made)


def test_views_go_and_come_back_with_what_they_share() -> None:
    made, a = begun()
    pairs = a.four()
    view = a.joined(*pairs)
    part = a.shard(view, 2)
    a.a.release(*pairs)
    assert made.run()
    before = used(made)
    a.a.relocate("suspend")
    assert made.run()
    assert not any(used(made))
    a.a.release(view)
    a.a.relocate("resume")
    assert made.run()
    assert used(made) == before, "the last view needs all of it"
    right(made, a, part)
    drain(made)


def test_a_slice_that_is_suspended_for_good_is_released_with_its_client() -> None:
    made, a = begun()
    a.joined(*a.four())
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    a.a.close()
    assert made.run()
    assert not made.machine.relocation.under_way
    made.at_rest()
    assert not any(used(made))


# --- hosts are emptied -----------------------------------------------------------------------------------------------


def test_a_host_that_drains_leaves_when_all_slices_have_moved_away_and_stays_away_until_its_cordon_is_lifted() -> None:
    made, a = begun(hosts=4)
    kept = a.whole()
    assert made.run()
    made.controller.feed(e.OperateHost(1, "drain"))
    made.run_for(S)
    assert not made.hosts[1].alive
    assert made.machine.members(0) == ((0, 1), (2, 4))
    assert where(made, kept) == [0, 1, 4, 5]
    made.return_host(1)
    made.run_for(S)
    assert made.machine.members(0) == ((0, 1), (2, 4))
    made.controller.feed(e.OperateHost(1, "uncordon"))
    made.return_host(1)
    made.run_for(S)
    assert made.machine.members(0) == ((0, 4),)
    right(made, a, kept)
    drain(made)


def test_a_host_that_cannot_be_emptied_waits_or_leaves_at_its_deadline() -> None:
    made, a = begun()
    kept = a.whole()
    assert made.run()
    made.controller.feed(e.OperateHost(1, "drain"))
    made.run_for(S)
    (found,) = made.machine.snapshot().drains
    assert (found.host, found.waits) == (1, "slice 's' finds no other devices")
    made.controller.feed(e.OperateHost(1, "drain", patience=S))
    made.run_for(2 * S)
    assert not made.hosts[1].alive
    assert kept.blame is not None
    assert kept.blame.code == "host-left"
    drain(made)


def test_a_cordoned_host_gets_no_new_slices_and_keeps_those_that_it_has() -> None:
    made, a = begun(hosts=3)
    kept = a.whole()
    assert made.run()
    made.controller.feed(e.OperateHost(0, "cordon"))
    b = Arrays(made.client("b"))
    other = b.whole()
    assert made.run()
    assert where(made, kept) == [0, 1, 2, 3]
    assert where(made, other, client=2) == [2, 3, 4, 5]
    assert made.machine.snapshot().cordoned == (0,)
    drain(made)


def test_arrays_of_a_slice_that_was_released_move_away_too() -> None:
    made, a = begun(hosts=4)
    kept = a.whole()
    assert made.run()
    a.a.release_slice("s")
    made.controller.feed(e.OperateHost(0, "drain"))
    made.run_for(S)
    assert not made.hosts[0].alive
    right(made, a, kept)
    drain(made)

"""A suspended slice comes back on its own devices if they are free, else on others; what a lost host had is named."""

from __future__ import annotations

from core.model import spans
from core.model.program import SliceSpec
from core.model.topology import Cluster, Island
from tests.core.views.rig import ROWS, WHOLE, Arrays, begun, world
from tests.invariants.memory import MemoryChecker
from tests.world.script import Handle
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import ALONE, on_the_way, operate, right, used, where
from .test_moves_odd import loads


class Mine(Arrays):
    """Of a client that has one array on its slice."""

    mine: Handle


def suspended(hosts: int = 4, **options: int) -> tuple[World, Mine, Mine]:
    """A client whose slice is suspended, and another that has its devices alone."""
    made = world(hosts=hosts, **options)
    a = Mine(made.client("a"))
    a.mine = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    b = Mine(made.client("b"))
    b.mine = b.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    assert where(made, b.mine, client=2) == [0, 1, 2, 3]
    return made, a, b


def test_it_gets_other_devices_while_others_have_its_own_and_its_arrays_are_sent_from_host_memory() -> None:
    made, a, b = suspended(memory=40)
    full = [b.a.submit(ALONE, bytes(32)).results[0] for _ in range(3)]
    assert made.run()
    assert made.checks is not None
    (memory,) = [checker for checker in made.checks.checkers if isinstance(checker, MemoryChecker)]
    peaks = [memory.peak[device] for device in range(4)]
    a.a.relocate("resume")
    assert made.run()
    assert where(made, a.mine) == [4, 5, 6, 7]
    assert used(made)[:4] == [32] * 4
    assert [memory.peak[device] for device in range(4)] == peaks, "no byte was there on the way"
    right(made, a, a.mine, a.a.submit(ALONE, bytes(32)).results[0])
    right(made, b, b.mine, *full)
    drain(made)
    assert loads(made) == [1] * 8


def test_it_gets_its_own_devices_if_they_are_free() -> None:
    made, a, b = suspended()
    b.a.release(b.mine)
    b.a.release_slice("s")
    assert made.run()
    a.a.relocate("resume")
    assert made.run()
    assert where(made, a.mine) == [0, 1, 2, 3]
    right(made, a, a.mine)
    drain(made)


def test_it_waits_for_those_that_are_free_first_and_for_none_when_it_is_suspended_again() -> None:
    made, a, b = suspended(hosts=3)
    a.a.relocate("resume")
    made.run_for(50 * MS)
    assert on_the_way(made) == ["returning"]
    (seen,) = made.machine.snapshot().relocations
    assert seen.waits == "devices 0-3 of island 'i', bound by slice 's' of session 2"
    a.a.relocate("suspend")
    made.run_for(50 * MS)
    assert on_the_way(made) == ["parked"]
    assert not made.machine.resources.waiting()
    a.a.relocate("resume")
    made.run_for(50 * MS)
    made.crash_host(0)  # one of those that b has: so b gets others, and so does a when hosts are back
    made.run_for(S)
    made.return_host(0)
    made.run_for(S)
    b.a.release_slice("s")
    assert made.run()
    assert a.mine.blame is not None
    right(made, a, a.a.submit(ALONE, bytes(32)).results[0])
    drain(made)


def test_views_and_parts_come_along() -> None:
    made, a = begun(hosts=4)
    pairs = a.four()
    view = a.joined(*pairs)
    part = a.shard(view, 2)
    a.a.release(*pairs[1:])
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    b = made.client("b")
    other = b.submit(ALONE, bytes(32))
    assert made.run()
    assert other.good
    a.a.relocate("resume")
    assert made.run()
    assert where(made, view) == [4, 5, 6, 7]
    assert where(made, part) == [6]
    right(made, a, view, part, pairs[0])
    drain(made)


def test_slices_that_lay_together_come_back_together() -> None:
    made, a = begun(hosts=4)
    twin = SliceSpec("twin", 4)
    kept, other = a.whole(), a.a.put(ROWS, twin)
    assert made.run()
    assert where(made, other) == [4, 5, 6, 7]
    assert operate(made, "move", slice="twin", away=spans.of([2, 3])) == ""
    made.run_for(S)
    assert where(made, other) == where(made, kept) == [0, 1, 2, 3]
    a.a.relocate("suspend")
    assert made.run()
    b = made.client("b")
    theirs = b.submit(ALONE, bytes(32))
    assert made.run()
    assert theirs.good
    a.a.relocate("resume")
    made.run_for(S)
    assert where(made, other) == where(made, kept) == [4, 5, 6, 7]
    assert loads(made) == [1] * 4 + [2] * 4
    right(made, a, kept, other)
    drain(made)


def test_on_another_island_if_there_is_no_room_on_its_own() -> None:
    islands = tuple(Island(name=name, hosts=2, devices_per_host=2, memory=1 << 30) for name in "xy")
    made = World(Cluster(islands), seed=7)
    a, b = Arrays(made.client("a")), Arrays(made.client("b"))
    mine = a.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    theirs = b.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("resume")
    assert made.run()
    assert (where(made, mine), where(made, theirs, client=2)) == ([4, 5, 6, 7], [0, 1, 2, 3])
    right(made, a, mine)
    drain(made)


def test_what_a_host_had_in_its_memory_is_lost_with_it_by_name_and_the_rest_comes_back_elsewhere() -> None:
    made, a = begun(hosts=4)
    whole, pairs = a.whole(), a.four()
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    made.crash_host(1)
    made.run_for(20 * S)
    assert on_the_way(made) == ["parked"], "it needs no device"
    gone = [handle for handle in (whole, *pairs) if handle.blame is not None]
    assert gone == [whole, *pairs[2:]]
    assert all("host 1 " in str(handle.blame) and "suspended" in str(handle.blame) for handle in gone)
    assert "client 'a' has lost arrays of slices that are suspended: 1, 2, 5, 6" in made.told
    a.a.relocate("resume")
    assert made.run()
    later = a.run("read", WHOLE, bytes(32), ROWS).results[0]
    assert made.run()
    assert where(made, later) == [0, 1, 4, 5]
    assert (where(made, pairs[0]), where(made, pairs[1])) == ([0], [1])
    right(made, a, *pairs[:2], later)
    drain(made)


def test_a_host_is_lost_to_which_it_comes_back() -> None:
    made, a, _ = suspended(hosts=6)
    a.a.relocate("resume")
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    target = made.machine.resources.binding(1, "s").target
    made.crash_host(next(iter(target.devices())) // 2)
    made.run_for(5 * S)
    assert not on_the_way(made)
    right(made, a, a.mine)
    drain(made)


def test_it_comes_back_only_where_it_was_if_its_arrays_do_not_fit_anywhere_else_at_once() -> None:
    island = Island(name="i", hosts=4, devices_per_host=2, memory=40)
    made = World(Cluster((island,)), seed=7)
    a, b = Arrays(made.client("a")), Arrays(made.client("b"))
    kept = [a.a.submit(ALONE, bytes(32)).results[0] for _ in range(7)]
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    theirs = b.a.submit(ALONE, bytes(32)).results[0]
    assert made.run()
    a.a.relocate("resume")
    made.run_for(20 * S)
    assert on_the_way(made) == ["returning"]
    b.a.release_slice("s")
    assert made.run()
    assert where(made, kept[0]) == [0, 1, 2, 3]
    right(made, a, *kept)
    right(made, b, theirs)
    drain(made)

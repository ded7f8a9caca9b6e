"""What is suspended and has no room in host memory goes to the disks of its hosts, and comes back from there."""

from __future__ import annotations

import pytest

from core.model import spans
from core.model.topology import Cluster, Island
from tests.core.views.rig import Arrays
from tests.world.script import Handle
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import on_the_way, operate, right, used, where

ARRAY = 16  # bytes of an array on each of its two hosts


def begun(host_memory: int, host_disk: int, arrays: int = 3, devices: int = 2) -> tuple[World, Arrays, list[Handle]]:
    island = Island(name="i", hosts=4, devices_per_host=devices, host_memory=host_memory, host_disk=host_disk)
    made = World(Cluster((island,)), seed=7)
    a = Arrays(made.client("a"))
    kept = [a.whole() for _ in range(arrays)]
    assert made.run()
    return made, a, kept


def on_disk(made: World) -> list[bool]:
    return [buffer.on_disk for buffer in made.machine.buffers if buffer.on_host]


def test_memory_comes_first_and_the_disk_takes_the_rest_and_all_of_it_comes_back() -> None:
    made, a, kept = begun(ARRAY, 2 * ARRAY)
    a.a.relocate("suspend")
    assert made.run()
    assert on_the_way(made) == ["parked"]
    assert on_disk(made) == [False, True, True]
    assert not any(used(made))
    a.a.relocate("resume")
    right(made, a, *kept)
    assert on_disk(made) == []
    drain(made)


def test_a_slice_stays_when_neither_has_room_for_it_and_says_for_what_it_waits() -> None:
    made, a, kept = begun(ARRAY, ARRAY)
    a.a.relocate("suspend")
    made.run_for(S)
    (seen,) = made.machine.snapshot().relocations
    assert seen.waits == "room in host memory, or on disk"
    a.a.release(kept.pop())
    assert made.run()
    assert on_the_way(made) == ["parked"]
    a.a.relocate("resume")
    right(made, a, *kept)
    drain(made)


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_later_start_of_the_controller_counts_what_is_on_disk_there(restarts: int) -> None:
    made, a, kept = begun(ARRAY, 2 * ARRAY)
    a.a.relocate("suspend")
    assert made.run()
    for _ in range(restarts):
        made.restart_controller()
        made.run_for(S)
    assert sorted(on_disk(made)) == [False, True, True]
    assert made.machine.spill.disk.counters() == [(((0, 2),), 2 * ARRAY)]
    a.a.relocate("resume")
    right(made, a, *kept)
    drain(made)


def test_other_devices_get_what_is_on_disk() -> None:
    made, a, kept = begun(0, 3 * ARRAY)
    a.a.relocate("suspend")
    assert made.run()
    assert operate(made, "move", away=spans.of([0, 1])) == ""
    a.a.relocate("resume")
    assert made.run()
    assert where(made, kept[0]) == [4, 5, 6, 7]
    right(made, a, *kept)
    drain(made)


@pytest.mark.parametrize("heard", [0, 1])
def test_what_only_one_host_had_sent_to_disk_before_a_restart_goes_there_on_the_other_too(heard: int) -> None:
    """There is room in memory by then: but one of them has it on disk, where it counts."""
    made, a, (gone, kept) = begun(ARRAY, ARRAY, arrays=2)
    made.cut("controller", f"host {1 - heard}")
    a.a.relocate("suspend")
    made.run_for(3 * MS)
    assert [[*made.fabric.hosts[host].off.values()] for host in (heard, 1 - heard)] == [["memory", "disk"], []]
    made.crash_controller()
    a.a.release(gone)
    made.mend("controller", f"host {1 - heard}")
    made.restart_controller()
    made.run_for(2 * S)
    assert [[*made.fabric.hosts[host].off.values()] for host in (0, 1)] == [["disk"]] * 2
    assert on_disk(made) == [True]
    assert made.machine.spill.disk.counters() == [(((0, 2),), ARRAY)]
    a.a.relocate("resume")
    right(made, a, kept)
    drain(made)


def test_what_a_disk_does_not_give_back_is_lost_by_name_and_says_why_and_the_rest_comes_back() -> None:
    made, a, (first, *others) = begun(2 * ARRAY, ARRAY)
    a.a.relocate("suspend")
    assert made.run()
    made.fabric.damaged = 1
    a.a.relocate("resume")
    assert made.run()
    assert on_the_way(made) == []
    lost = [each for each in (first, *others) if each.blame]
    assert [str(each.blame) for each in lost] == ["[lost] its file is damaged (host 0)"]
    right(made, a, *[each for each in (first, *others) if each not in lost])
    drain(made)


@pytest.mark.parametrize(("devices", "there"), [(4, [0, 1, 2, 3]), (8, [4, 5, 6, 7])])
def test_so_is_it_if_other_devices_are_to_get_it_and_one_send_finds_all_that_is_damaged(
    devices: int, there: list[int]
) -> None:
    """Devices of another host, or of the same."""
    made, a, (first, *others) = begun(2 * ARRAY, 6 * ARRAY, arrays=4, devices=devices)
    a.a.relocate("suspend")
    assert made.run()
    made.fabric.damaged = 1
    assert operate(made, "move") == ""
    a.a.relocate("resume")
    assert made.run()
    assert on_the_way(made) == []
    assert where(made, first) == there
    assert [str(each.blame) for each in others] == ["[lost] its file is damaged (host 0)"] * 3
    print(made.told)
    right(made, a, first, a.whole())
    drain(made)


@pytest.mark.parametrize(("memory", "where"), [(2 * ARRAY, "in its memory"), (ARRAY, "on its disk")])
def test_a_host_that_is_lost_takes_what_was_in_its_memory_or_on_its_disk_with_it(memory: int, where: str) -> None:
    made, a, (_, later) = begun(memory, ARRAY, arrays=2)
    a.a.relocate("suspend")
    assert made.run()
    made.crash_host(1)
    made.run_for(20 * S)
    assert str(later.blame).endswith(f"this array was {where}, for its slice is suspended (host 1)")


def test_a_host_that_cannot_write_keeps_what_it_was_sent_in_memory_and_is_sent_no_more_until_it_starts_again() -> None:
    made, a, kept = begun(0, 3 * ARRAY)
    made.fabric.disk_fails = 1  # of hosts 1 and 3
    a.a.relocate("suspend")
    assert made.run()
    assert next(text for text in made.told if "trouble" in text) == "trouble on host 1: [disk] full"
    assert sorted(made.fabric.hosts[1].off.values()) == ["memory"] * 3, "they had been ordered by then"
    a.a.relocate("resume")
    right(made, a, *kept)
    a.a.relocate("suspend")
    made.run_for(S)
    assert on_the_way(made) == ["spilling"], "no disk is left for it"
    a.a.relocate("resume")
    right(made, a, *kept)
    made.fabric.disk_fails = 0
    made.crash_host(1)
    made.return_host(1)
    made.run_for(S)
    later = a.whole()
    assert made.run()
    a.a.relocate("suspend")
    assert made.run()
    assert on_the_way(made) == ["parked"]
    a.a.relocate("resume")
    right(made, a, later)
    drain(made)

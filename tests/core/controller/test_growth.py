"""A running cluster grows: what is there goes on, and what was too large before, or waited, can be had."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.program import Program, SliceSpec
from core.model.topology import Cluster, Island
from core.protocol import effects as e
from tests.core.build import Build, chain
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

ONE = Island(name="i", hosts=2, devices_per_host=2)
SMALL = Cluster((ONE,))
WIDER = Cluster((Island(name="i", hosts=4, devices_per_host=2),))
MORE = Cluster((ONE, Island(name="j", hosts=2, devices_per_host=4)))


def made_on(name: str, home: SliceSpec) -> Program:
    b = Build(name)
    b.slices = [home]
    return b.program(b.call(name, home.name, [b.arg(home.name, 8, split="0")]))


def there(name: str, devices: int, island: str = "", **more: Any) -> Program:
    return made_on(name, SliceSpec(f"on {name}", devices, island=island, **more))


@pytest.mark.parametrize(("whole", "devices", "island"), [(WIDER, 8, "i"), (MORE, 8, "j")], ids=["hosts", "an island"])
def test_runs_go_on_while_it_grows_and_what_was_refused_can_be_had(whole: Cluster, devices: int, island: str) -> None:
    world = World(whole, known=SMALL)
    a = world.client("a")
    runs = [a.submit(chain(20, 4), bytes(16)) for _ in range(3)]
    refused = a.submit(there("large", devices, island), bytes(32))
    world.run_for(5 * MS)
    assert refused.blame is not None
    assert refused.blame.code == "refused"
    world.grow(whole)
    assert world.answer == ""
    large, again = (a.submit(there(name, devices, island), bytes(32)) for name in ("wide", "large"))
    assert world.run()
    assert all(run.good for run in runs)
    assert large.good
    assert again.good, "the same program, which the controller knows"
    fetched = a.get(large.results[0])
    assert world.run()
    assert fetched.right, "so the client knows which host has which device"
    drain(world)


def test_a_slice_that_waits_gets_the_new_hosts() -> None:
    world = World(WIDER, known=SMALL)
    a = world.client("a")
    first = a.submit(there("first", 4, exclusive=True), bytes(32))
    second = a.submit(there("second", 4, exclusive=True), bytes(32))
    world.run_for(20 * MS)
    assert first.good
    assert not second.ended
    world.grow(WIDER)
    assert world.run()
    assert second.good
    drain(world)


def test_a_slice_of_any_size_takes_the_new_hosts_too() -> None:
    world = World(WIDER, known=SMALL)
    a = world.client("a")
    a.elastic("e", (2, 4, 8), SliceSpec("e", 1), moves_on=0)
    world.run_for(S)
    assert a.sizes["e"][-1].devices == 4
    world.grow(WIDER)
    assert world.run_until(lambda: a.sizes["e"][-1].devices == 8)
    a.close()
    assert world.run()
    world.at_rest()


def test_old_hosts_send_to_new_ones_and_receive_from_them() -> None:
    """The old island has no new epoch for it: its hosts are told in the stream."""
    world = World(MORE, known=SMALL)
    a = world.client("a")
    assert a.submit(chain(1, 4), bytes(16)) is not None
    assert world.run()
    epoch = world.machine.state.islands[0].epoch
    world.grow(MORE)
    b = Build("there and back")
    b.slices = [SliceSpec("here", 4, island="i"), SliceSpec("there", 8, island="j")]
    x = b.call("f", "here", [b.arg("here", 8, split="0")])
    y = b.call("g", "there", [x], [b.value("there", 8, split="0")])
    run = a.submit(b.program(b.call("h", "here", [y], [b.value("here", 8, split="0")])), bytes(32))
    fetch = a.get(run.results[0])
    assert world.run()
    assert run.good
    assert fetch.right
    assert world.machine.state.islands[0].epoch == epoch
    drain(world)


def test_a_host_that_drains_leaves_its_slices_to_a_new_one() -> None:
    world = World(WIDER, known=SMALL)
    a = world.client("a")
    kept = a.submit(there("make", 4), bytes(32)).results[0]
    assert world.run()
    world.controller.feed(e.OperateHost(0, "drain"))
    world.run_for(S)
    assert [each.host for each in world.machine.snapshot().drains] == [0], "there is no room elsewhere"
    world.grow(WIDER)
    assert world.run_until(lambda: world.machine.snapshot().drained == (0,))
    fetch = a.get(kept)
    assert world.run()
    assert fetch.right
    drain(world)


def test_a_controller_that_is_started_again_with_the_larger_cluster_takes_all_hosts_in() -> None:
    world = World(MORE, known=SMALL)
    a = world.client("a")
    world.grow(MORE)
    kept = a.submit(there("make", 8, "j"), bytes(32)).results[0]
    assert world.run()
    world.restart_controller()
    assert world.run()
    b = Build("over")
    b.slices = [SliceSpec("on make", 8, island="j"), SliceSpec("here", 4, island="i")]
    x = b.arg("on make", 8, split="0")
    run = a.submit(b.program(b.call("f", "here", [x], [b.value("here", 8, split="0")])), kept)
    fetch = a.get(run.results[0])
    assert world.run()
    assert run.good
    assert fetch.right
    drain(world)


@pytest.mark.parametrize("whole", [WIDER, MORE], ids=["hosts", "an island"])
def test_a_restarted_controller_does_not_wait_for_new_hosts_that_have_never_come(whole: Cluster) -> None:
    world = World(whole, known=SMALL)
    a = world.client("a")
    kept = a.submit(there("make", 4, "i"), bytes(32)).results[0]
    assert world.run()
    world.grow(whole, come=-1)
    world.run_for(S)
    world.restart_controller()
    assert world.run_until(lambda: not world.machine.recovery.under_way)
    assert world.now < 3 * S, "as soon as those are back that were there before"
    fetch = a.get(kept)
    assert world.run()
    assert fetch.right
    world.return_host(2)
    drain(world)


def test_a_start_that_was_not_told_which_hosts_there_were_waits_for_all_and_the_next_one_does_not() -> None:
    world = World(WIDER, known=SMALL)
    a = world.client("a")
    kept = a.submit(there("make", 4, "i"), bytes(32)).results[0]
    assert world.run()
    world.grow(WIDER, come=-1)
    world.run_for(S)
    world.had.clear()  # the file could not be written
    for slow in (True, False):
        begins = world.now
        world.restart_controller()
        assert world.run_until(lambda: not world.machine.recovery.under_way)
        assert (world.now - begins > 3 * S) == slow
        world.run_for(S)
    fetch = a.get(kept)
    assert world.run()
    assert fetch.right
    world.return_host(2)
    drain(world)


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    world = World(WIDER, known=SMALL)
    world.client("a")
    assert world.run()
    before = world.machine.snapshot()
    world.controller.feed(e.GrowCluster(Cluster((Island(name="i", hosts=2, devices_per_host=4),))))
    assert "island 'i': `devices_per_host` was 2 and is 4" in world.answer
    assert world.machine.cluster == SMALL
    assert world.machine.snapshot() == before

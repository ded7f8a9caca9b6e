"""What clients of elastic slices are told, and what those hear that wait for devices; see `controller.elastic`."""

from __future__ import annotations

import msgspec
import pytest

from core.controller.config import Config
from core.model.program import SliceSpec
from core.protocol import effects as e
from core.schedule.policy import Fifo, Policy, Priority
from tests.core.build import Build
from tests.core.views.rig import ROWS, Arrays, program, world
from tests.world.script import Handle, RunHandle, Script
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import right, where

ALONE = SliceSpec("like", 1, exclusive=True)
CONFIG = Config(preempt_keep=2 * S)


def begun(hosts: int = 4, policy: type[Policy] = Fifo, **options: int) -> World:
    return world(hosts, policy=policy, config=msgspec.structs.replace(CONFIG, **options))


def client(made: World, name: str, sizes: tuple[int, ...] = (), priority: int = 0, like: SliceSpec = ALONE) -> Script:
    """Of devices alone, of these sizes; at rest."""
    script = made.client(name, priority=priority)
    if sizes:
        script.elastic("e", sizes, like)
    made.run_for(50 * MS)
    return script


def sizes(script: Script) -> list[int]:
    return [spec.devices for spec in script.sizes["e"]]


def move_on(made: World, script: Script) -> None:
    """As a program does that has heard of another size: it releases the slice before, and uses the new one."""
    spec = script.moved_on("e")
    assert spec == script.sizes["e"][-1]
    ran(made, script, spec)
    made.run_for(50 * MS)


def grew(policy: type[Policy] = Fifo, sizes: tuple[int, ...] = (4, 8), priority: int = 0) -> tuple[World, Script]:
    """It was offered all devices, and has not moved on."""
    made = begun(policy=policy)
    other = made.client("other")
    ran(made, other, alone(8 - sizes[0]))
    one = client(made, "one", sizes, priority)
    ran(made, one, one.sizes["e"][0])
    other.release_slice("s")
    assert made.run_until(lambda: len(one.sizes["e"]) == 2)
    made.run_for(S)
    return made, one


def ran(made: World, script: Script, spec: SliceSpec) -> Handle:
    run = submitted(script, spec)
    assert made.run_until(lambda: run.ended)
    assert run.good
    return run.results[0]


def submitted(script: Script, spec: SliceSpec) -> RunHandle:
    return script.submit(
        program("make", spec, msgspec.structs.replace(ROWS, shape=(4 * spec.devices,))), bytes(16 * spec.devices)
    )


def alone(devices: int) -> SliceSpec:
    return SliceSpec("s", devices, exclusive=True)


# --- how large it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "taken", "got"), [((2, 4, 8), 0, 8), ((2, 4, 8), 2, 4), ((3, 6), 2, 6), ((2,), 6, 2)]
)
def test_it_is_the_largest_of_its_sizes_that_is_free(asked: tuple[int, ...], taken: int, got: int) -> None:
    made = begun()
    other = made.client("other")
    if taken:
        ran(made, other, alone(taken))
    one = client(made, "one", asked)
    assert sizes(one) == [got]
    ran(made, one, one.sizes["e"][0])
    drain(made)


def test_it_waits_for_the_smallest_if_there_is_none_and_takes_a_larger_one_if_there_is_one_then() -> None:
    made = begun()
    other = made.client("other")
    ran(made, other, alone(7))
    one = client(made, "one", (2, 4))
    made.run_for(5 * S)
    assert sizes(one) == []
    other.release_slice("s")
    made.run_for(S)
    assert sizes(one) == [4]
    assert len(made.machine.resources.bindings()) == 1
    drain(made)


def test_sizes_that_can_never_be_had_are_refused_by_name_and_larger_ones_are_left_out() -> None:
    made = begun()
    one = client(made, "one", (9, 10))
    assert one.refusals[-1].what == "elastic"
    assert "9 devices" in one.refusals[-1].blame.cause
    two = client(made, "two", (6, 100))
    assert sizes(two) == [6]
    drain(made)


# --- it grows ---------------------------------------------------------------------------------------------------------


def test_it_grows_when_devices_are_free_and_it_has_had_its_size_for_a_while() -> None:
    made = begun()
    other = made.client("other")
    ran(made, other, alone(4))
    one = client(made, "one", (2, 4, 8))
    kept = ran(made, one, one.sizes["e"][0])
    before = made.now
    other.release_slice("s")
    assert made.run_until(lambda: len(sizes(one)) == 2)
    assert S < made.now - before < 3 * S
    assert sizes(one) == [4, 8]
    assert where(made, kept, 2) == [4, 5, 6, 7], "what it had it has until it releases that"
    right(made, Arrays(one), kept)
    move_on(made, one)
    assert [binding.spec.name for binding in made.machine.resources.bindings()] == ["e@8"]
    drain(made)


def test_it_grows_on_hosts_that_come_and_does_not_while_others_wait_for_devices() -> None:
    made = begun()
    made.crash_host(3)
    made.run_for(5 * S)
    one = client(made, "one", (2, 4, 6, 8))
    assert sizes(one) == [6]
    waits = submitted(made.client("two"), alone(8))
    made.return_host(3)
    made.run_for(10 * S)
    assert sizes(one) == [6]
    assert not waits.ended
    made.clients[-1].cancel(waits)
    made.clients[-1].release_slice("s")
    made.run_for(10 * S)
    assert sizes(one) == [6, 8]
    drain(made)


# --- it shrinks -------------------------------------------------------------------------------------------------------


def test_it_shrinks_by_as_little_as_will_do_for_a_slice_that_waits_and_grows_again() -> None:
    made = begun()
    one, other = client(made, "one", (2, 4, 6, 8)), made.client("other")
    assert sizes(one) == [8]
    waits = submitted(other, alone(3))
    made.run_for(S)
    assert sizes(one) == [8, 4]
    assert not waits.ended, "nothing is taken from it before it has moved"
    move_on(made, one)
    assert waits.good
    other.release_slice("s")
    made.run_for(3 * S)
    assert sizes(one) == [8, 4, 8]
    move_on(made, one)
    drain(made)


def test_several_shrink_for_one_that_needs_it() -> None:
    made = begun()
    both = [client(made, name, (2, 4)) for name in ("one", "two")]
    waits = submitted(made.client("other"), alone(4))
    made.run_for(S)
    assert [sizes(each) for each in both] == [[4, 2], [4, 2]]
    for each in both:
        move_on(made, each)
    made.run_for(S)
    assert waits.good
    drain(made)


def test_it_does_not_shrink_for_what_would_have_no_room_even_then_nor_for_what_is_less_urgent() -> None:
    made = begun(policy=Priority)
    one = client(made, "one", (4, 8), priority=1)
    runs = [submitted(made.client("equal", priority=1), alone(6)), submitted(made.client("low"), alone(2))]
    made.run_for(5 * S)
    assert sizes(one) == [8]
    for script, run in zip(made.clients[1:], runs, strict=True):
        script.cancel(run)
        script.release_slice("s")
    drain(made)


def test_one_that_does_not_shrink_when_asked_is_suspended_where_the_policy_preempts() -> None:
    made = begun(policy=Priority)
    one = client(made, "one", (4, 8))
    kept = ran(made, one, one.sizes["e"][0])
    waits = submitted(made.client("high", priority=1), alone(4))
    made.run_for(S)
    assert sizes(one) == [8, 4]
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    made.clients[-1].release_slice("s")
    right(made, Arrays(one), kept)
    drain(made)


# --- it does not move on to more --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "priority"), [(Fifo, 0), (Priority, 9)])
def test_more_to_which_it_has_not_moved_on_is_taken_back_as_soon_as_anyone_could_use_it(
    policy: type[Policy], priority: int
) -> None:
    made, one = grew(policy, priority=priority)
    waits = submitted(made.client("two"), alone(4))
    made.run_for(10 * MS)
    assert waits.good
    assert sizes(one) == [4, 8, 4]
    assert one.sizes["e"][2].name == one.sizes["e"][0].name, "it stays what it was"
    ran(made, one, one.sizes["e"][0])
    made.clients[-1].release_slice("s")
    made.run_for(5 * S)
    assert sizes(one) == [4, 8, 4, 8]
    move_on(made, one)
    ran(made, one, one.sizes["e"][-1])
    drain(made)


def test_no_more_is_taken_back_than_will_do_and_nothing_for_what_would_have_no_room_even_then() -> None:
    made, one = grew()
    waits = submitted(made.client("large"), alone(5))
    made.run_for(5 * S)
    assert sizes(one) == [4, 8]
    assert not waits.ended
    made.clients[-1].cancel(waits)
    made.clients[-1].release_slice("s")
    move_on(made, one)
    waits = submitted(made.client("two"), alone(4))
    made.run_for(S)
    assert sizes(one) == [4, 8, 4], "it has moved on: this is another one, of four devices"
    assert not waits.ended
    move_on(made, one)
    made.run_for(S)
    assert waits.good
    drain(made)


@pytest.mark.parametrize("late", range(0, 3 * MS, MS // 8))
def test_one_that_moves_on_while_that_is_taken_back_shrinks_like_any_other(late: int) -> None:
    made, one = grew()
    waits = submitted(made.client("two"), alone(4))
    made.run_for(late)
    spec = one.moved_on("e")
    assert spec is not None
    run = submitted(one, spec)
    assert made.run_until(lambda: run.ended)
    assert run.good
    if spec.devices == 8:
        assert made.run_until(lambda: len(sizes(one)) == 3)
        spec = one.moved_on("e")
        assert spec is not None
        assert spec.devices == 4
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    ran(made, one, spec)
    made.clients[-1].release_slice("s")
    made.run_for(5 * S)
    assert sizes(one)[-2:] == [4, 8], "it is still one that grows"
    drain(made)


def test_a_restart_while_that_is_taken_back_keeps_nobody_waiting() -> None:
    made, one = grew()
    two = made.client("two")
    waits = submitted(two, alone(4))
    assert made.run_until(lambda: any("is to have 4 devices" in text for text in made.told))
    made.restart_controller()
    made.run_for(5 * S)
    assert waits.blame is not None, "the restart has cut it short"
    ran(made, two, alone(4))
    assert sizes(one)[-1] == 4
    assert [binding.spec.devices for binding in made.machine.resources.bindings()] == [4, 4]
    ran(made, one, one.sizes["e"][0])
    drain(made)


# --- losses, drains, restarts -----------------------------------------------------------------------------------------


def test_it_is_smaller_when_a_host_is_lost_and_there_are_no_others() -> None:
    made = begun()
    one = client(made, "one", (2, 4, 6, 8))
    ran(made, one, one.sizes["e"][0])
    made.crash_host(1)
    made.run_for(5 * S)
    assert sizes(one) == [8, 6]
    move_on(made, one)
    made.return_host(1)
    made.run_for(5 * S)
    assert sizes(one) == [8, 6, 8]
    drain(made)


def test_a_host_drains_when_it_has_moved_to_a_smaller_one() -> None:
    made = begun()
    one = client(made, "one", (2, 4, 6, 8))
    one.release(ran(made, one, one.sizes["e"][0]))
    made.controller.feed(e.OperateHost(2, "drain"))
    made.run_for(S)
    assert sizes(one) == [8, 6]
    move_on(made, one)
    one.release_all()
    made.run_for(5 * S)
    assert list(made.machine.state.drained) == [2]
    made.drained_stay_away = False
    made.controller.feed(e.OperateHost(2, "uncordon"))
    made.return_host(2)
    made.run_for(5 * S)
    assert sizes(one) == [8, 6, 8]
    drain(made)


def test_a_restarted_controller_leaves_it_what_it_is() -> None:
    made = begun()
    other = made.client("other")
    ran(made, other, alone(4))
    one = client(made, "one", (2, 4, 8))
    made.restart_controller()
    made.run_for(5 * S)
    ran(made, one, one.sizes["e"][0])
    assert sizes(one)[0] == 4
    assert {binding.spec.devices for binding in made.machine.resources.bindings() if binding.session} <= {4, 8}
    drain(made)


def test_released_by_its_name_it_is_gone_whatever_it_is_and_may_be_asked_for_again() -> None:
    made = begun()
    one = client(made, "one", (2, 8))
    submitted(made.client("two"), alone(4))
    made.run_for(S)
    assert sizes(one) == [8, 2]
    one.release_slice("e")
    made.run_for(S)
    assert [binding.session for binding in made.machine.resources.bindings()] == [2]
    one.elastic("e", (3,), ALONE)
    made.run_for(S)
    assert sizes(one) == [3]
    drain(made)


# --- names, and a session that begins anew ----------------------------------------------------------------------------


@pytest.mark.parametrize("part", [False, True])
def test_names_that_the_client_has_given_to_other_slices_are_left_alone(part: bool) -> None:
    made = begun()
    one = made.client("one")
    if part:
        b = Build("p", s=4)
        b.slices.append(SliceSpec("e@4", 1, of="s", picks=(0,)))
        run = one.submit(b.program(b.call("f", "e@4", [b.arg("e@4", 2)])), bytes(8))
        assert made.run_until(lambda: run.ended)
    else:
        ran(made, one, SliceSpec("e@4", 1))
    one.elastic("e", (2, 4), ALONE)
    made.run_for(S)
    assert sizes(one) == [4]
    assert one.sizes["e"][0].name == "e@4+"
    ran(made, one, one.sizes["e"][0])
    one.relocate("suspend")
    one.relocate("resume")
    made.run_for(S)
    drain(made)


def test_a_name_of_the_client_s_does_not_save_it_from_one_that_is_more_urgent() -> None:
    made = begun(5, policy=Priority)
    low = client(made, "low", (2, 8))
    ran(made, low, SliceSpec("e@2", 1))
    waits = submitted(made.client("high", priority=9), alone(4))
    assert made.run_until(lambda: waits.ended)
    assert waits.good
    made.clients[-1].release_slice("s")
    drain(made)


@pytest.mark.parametrize("moved", [True, False], ids=["it had moved", "it was about to"])
def test_after_a_restart_it_has_what_it_was_and_nothing_of_what_it_was_before(moved: bool) -> None:
    made = begun()
    one, other = client(made, "one", (2, 4, 8)), made.client("other")
    ran(made, one, one.sizes["e"][0])
    waits = submitted(other, alone(4))
    made.run_for(S)
    assert sizes(one) == [8, 4]
    if moved:
        move_on(made, one)
    made.restart_controller()
    made.run_for(5 * S)
    if not moved:
        move_on(made, one)
    assert made.run_until(lambda: waits.ended)
    mine = [binding.spec.name for binding in made.machine.resources.bindings() if binding.session == 1]
    assert mine == ["e@4"]
    ran(made, one, one.sizes["e"][-1])
    drain(made)


def test_a_thousand_sizes_and_more_elastic_slices_than_there_may_be_take_no_time() -> None:
    made = begun()
    one = made.client("one")
    for number in range(70):
        one.elastic(f"e{number}", tuple(range(1, 2049)), SliceSpec("like", 1))
    made.run_for(S)
    assert sum(bool(told) for told in one.sizes.values()) == 64
    assert "64 elastic slices at most" in one.refusals[-1].blame.cause
    drain(made)


def test_one_that_is_asked_to_shrink_and_does_not_is_not_the_only_one_that_is_asked() -> None:
    made = begun()
    client(made, "deaf", (2, 4))
    hears = client(made, "hears", (2, 4))
    waits = submitted(made.client("other"), alone(2))
    made.run_for(5 * S)
    asked = [script for script in made.clients[:2] if len(sizes(script)) == 2]
    assert len(asked) == 2
    move_on(made, hears)
    made.run_for(S)
    assert waits.good
    drain(made)


def test_a_cordon_alone_does_not_concern_it() -> None:
    made = begun()
    one = client(made, "one", (2, 4, 8))
    made.controller.feed(e.OperateHost(2, "cordon"))
    made.run_for(5 * S)
    assert sizes(one) == [8]
    drain(made)

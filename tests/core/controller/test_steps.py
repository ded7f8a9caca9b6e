"""Gangs of several steps: who has them end early, and what their clients hear of that."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.program import Program
from core.model.topology import small
from core.protocol import effects as e
from tests.core.build import Build
from tests.world.script import RunHandle, Script
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

STEPS, EACH = 1000, 10 * MS


def train(*slices: str, steps: int = STEPS, each: int = EACH) -> Program:
    """A chain of gangs of so many steps, one on each of these slices of two devices."""
    b = Build("train", **dict.fromkeys(slices, 2))
    value = b.arg(slices[0], 4)
    for number, name in enumerate(slices * (2 if len(slices) == 1 else 1)):
        value = b.call("step", name, [value], cost=steps * each, steps=steps, node=f"train {number}")
    return b.program(value)


def begun(hosts: int = 2, **options: Any) -> tuple[World, Script]:
    made = World(small(hosts, 2), seed=7, **options)
    return made, made.client("a")


def called(a: Script, program: Program) -> RunHandle:
    return a.submit(program, *(bytes(value.nbytes) for value in program.args))


def ended(made: World, a: Script, run: RunHandle, within: int) -> None:
    """Well, and soon."""
    since = made.now
    assert made.run_until(lambda: run.ended)
    assert run.good, run.blame
    assert made.now - since < within
    fetch = a.get(run.results[0])
    assert made.run()
    assert fetch.right
    drain(made)


def test_a_run_that_nobody_stops_does_all_its_steps() -> None:
    made, a = begun()
    run = called(a, train("s", steps=3))
    ended(made, a, run, 2 * 3 * EACH + S)
    assert run.undone == 0


def test_a_stopped_run_ends_with_the_step_under_way_and_what_is_behind_does_none() -> None:
    made, a = begun()
    run = called(a, train("s"))
    made.run_for(S)
    a.stop(run)
    a.stop(run)
    ended(made, a, run, 2 * EACH)
    assert 2 * STEPS - 100 <= run.undone < 2 * STEPS - 90


def test_a_run_that_is_stopped_before_it_starts_does_no_step() -> None:
    made, a = begun()
    run = called(a, train("s"))
    a.stop(run)
    ended(made, a, run, S)
    assert run.undone == 2 * STEPS


def test_a_run_that_waits_for_devices_does_no_step_when_it_has_them() -> None:
    made, a = begun(hosts=1)
    first = called(a, train("s", steps=1, each=S))
    run = called(a, train("s"))
    a.stop(run)
    assert made.run_until(lambda: first.ended)
    ended(made, a, run, S)
    assert run.undone == 2 * STEPS


def test_ordinary_gangs_go_on_to_their_end() -> None:
    made, a = begun()
    run = called(a, train("s", steps=1, each=S))
    made.run_for(S // 2)
    a.stop(run)
    ended(made, a, run, 3 * S)
    assert run.undone == 0


@pytest.mark.parametrize("asks", ["client", "operator"])
@pytest.mark.parametrize("action", ["move", "suspend"])
def test_a_slice_that_is_moved_or_suspended_does_not_wait_for_all_steps(asks: str, action: Any) -> None:
    made, a = begun()
    run = called(a, train("s"))
    made.run_for(S)
    if asks == "client":
        a.relocate(action)
    else:
        made.controller.feed(e.OperateSlices(1, action))
        assert made.answer == ""
    assert made.run_until(lambda: run.ended)
    assert made.now < 2 * S
    assert run.undone > STEPS
    again = called(a, train("s", steps=2))
    if action == "suspend":
        made.run_for(S)
        assert not again.ended
        a.relocate("resume")
    ended(made, a, again, S)
    assert again.undone == 0


def test_a_host_that_drains_does_not_wait_for_all_steps() -> None:
    made, a = begun()
    run = called(a, train("s"))
    made.run_for(S)
    made.controller.feed(e.OperateHost(0, "drain"))
    assert made.run_until(lambda: run.ended)
    assert made.now < 2 * S
    assert run.undone > STEPS
    assert run.good


def test_a_slice_of_a_run_that_has_two_takes_the_whole_run_along() -> None:
    """Else the slice would wait for the steps on the other one."""
    made, a = begun()
    run = called(a, train("s", "t"))
    made.run_for(S)
    a.relocate("suspend", "t")
    assert made.run_until(lambda: run.ended)
    assert made.now < 2 * S
    assert run.undone > STEPS


def test_runs_elsewhere_go_on() -> None:
    made, a = begun()
    run, other = called(a, train("s")), called(a, train("t", steps=200))
    made.run_for(S)
    a.relocate("suspend", "s")
    assert made.run_until(lambda: run.ended and other.ended)
    assert (other.good, other.undone) == (True, 0)
    assert run.undone > STEPS


def test_a_controller_that_starts_anew_forgets_who_was_to_stop_and_nothing_else() -> None:
    made, a = begun()
    run = called(a, train("s", steps=100))
    made.run_for(S)
    a.stop(run)
    made.restart_controller()
    assert made.run_until(lambda: run.ended)
    assert run.blame is not None
    assert run.blame.code == "restart"
    again = called(a, train("s", steps=2))
    ended(made, a, again, 20 * S)

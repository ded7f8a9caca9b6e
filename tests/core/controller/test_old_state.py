"""A controller whose state does not go back to what hosts and clients have served: they do not obey it."""

from __future__ import annotations

from typing import Any

from core.controller.clients import ANOTHER, NO_HOST
from core.controller.membership import OTHER_STATE
from core.model.program import Program
from tests.golden.failing import _steps
from tests.golden.running import _world, _zeros
from tests.world.script import Script
from tests.world.timing import S
from tests.world.world import World


def run(made: World, client: Script, program: Program) -> bool:
    found = client.submit(program, *_zeros(program))
    made.run_until(lambda: found.ended)
    return found.good


def begun(**options: Any) -> tuple[World, Program, Script]:
    """Two hosts that have served the second start of their controller."""
    made = _world(hosts=2, **options)
    program = _steps(1, devices=2)
    a = made.client("a")
    made.restart_controller()
    assert run(made, a, program)
    return made, program, a


def refused(made: World) -> list[str]:
    return sorted(each.name for each in made.machine.snapshot().refusals if OTHER_STATE in each.reason)


def test_a_start_of_the_same_number_from_an_older_copy_is_not_obeyed() -> None:
    """And so is the next one from that copy, whose number is higher than any that hosts know."""
    made, program, a = begun()
    older = made.past[:1]
    for _ in range(3):
        made.restart_controller(older)
        older = made.past
        made.run_for(1 * S)
        assert refused(made) == ["host 0", "host 1"]
        assert not made.machine.members(0)
    assert made.machine.incarnation > 1
    assert any(f"the session is over: {ANOTHER}" in str(each.blame) for each in a.buffers.values())
    b = made.client("b")
    mine = b.submit(program, *_zeros(program))
    made.run_until(lambda: mine.ended)
    assert (mine.blame and mine.blame.code, mine.blame and mine.blame.cause) == (
        "refused",
        f"the session is over: {NO_HOST}",
    )


def test_with_the_newest_state_a_client_that_slept_meanwhile_finds_its_arrays() -> None:
    made, program, a = begun()
    newest = made.past
    made.stand_still("client a", 2 * S)
    made.restart_controller(newest[:1])
    made.run_for(1 * S)
    assert refused(made)
    made.restart_controller(newest)
    made.run_for(60 * S)
    assert not refused(made)
    kept = next(iter(a.buffers.values()))
    got = a.get(kept)
    made.run_until(lambda: got.over)
    assert got.right
    assert run(made, a, program)


def test_only_hosts_that_know_better_are_refused_until_their_agents_begin_anew() -> None:
    """Host 1 has begun anew meanwhile: it obeys, and then belongs to that other line. (The checkers know things by
    number, and here two have the same.)"""
    made, program, _ = begun(check=False)
    newest = made.past
    made.crash_host(1)
    made.restart_controller(newest[:1])
    made.return_host(1)
    made.run_for(90 * S)
    assert refused(made) == ["host 0"]
    assert made.machine.members(0) == ((1, 2),)
    made.restart_controller(newest)
    made.run_for(90 * S)
    assert refused(made) == ["host 1"]
    made.return_host(1)
    made.run_until(lambda: made.machine.members(0) == ((0, 2),))
    assert not refused(made)
    assert run(made, made.client("b"), program)


def test_a_controller_that_forgets_serves_hosts_that_begin_anew() -> None:
    made, program, a = begun()
    made.restart_controller(())
    made.run_for(1 * S)
    assert refused(made) == ["host 0", "host 1"]
    for host in (0, 1):
        made.return_host(host)
    made.run_for(1 * S)
    assert a.machine.state == "closed"
    assert run(made, made.client("b"), program)

"""A host that asks to leave, with some time: what can move away does, and nothing waits for what cannot."""

from __future__ import annotations

import pytest

from core.protocol import effects as e
from tests.core.views.rig import ROWS, WHOLE, Arrays, begun
from tests.world.test_world import drain
from tests.world.timing import MS, S
from tests.world.world import World

from .test_moves import on_the_way, right, where

LONG = 15 * S


def test_its_slices_move_away_with_their_arrays_and_views_before_it_leaves() -> None:
    made, a = begun(hosts=4)
    pairs = a.four()
    view = a.joined(*pairs)
    assert made.run()
    made.leave_host(0, "pre-emption", LONG)
    assert made.run_until(lambda: on_the_way(made) == ["copying"])
    assert 0 in made.machine.drains.under_way
    assert made.run_until(lambda: not made.hosts[0].alive)
    assert made.now < LONG
    assert where(made, view) == [2, 3, 4, 5]
    right(made, a, view, *pairs, a.whole())
    drain(made)


def test_it_leaves_at_once_when_nothing_that_is_there_has_another_place() -> None:
    made, a = begun(hosts=2)
    kept = a.whole()
    assert made.run()
    begins = made.now
    made.leave_host(0, "pre-emption", LONG)
    assert made.run_until(lambda: not made.hosts[0].alive)
    assert made.now - begins < 100 * MS
    made.run_for(S)
    assert kept.blame is not None
    assert kept.blame.code == "host-left"


def test_it_may_come_back_and_is_not_cordoned_then() -> None:
    made, a = begun(hosts=4)
    kept = a.whole()
    assert made.run()
    made.leave_host(0, "pre-emption", LONG)
    assert made.run_until(lambda: not made.hosts[0].alive)
    assert where(made, kept) == [2, 3, 4, 5]
    made.hosts[0].leaving = False
    made.return_host(0)
    made.run_for(S)
    assert not made.machine.resources.is_cordoned(0)
    assert not made.machine.state.drained
    b = a.whole()
    right(made, a, kept, b)
    drain(made)


def test_what_does_not_end_keeps_it_no_longer_than_it_has_said() -> None:
    made, a = begun(hosts=4)
    made.fabric.slow[0] = 1e9
    run = a.run("long", WHOLE, bytes(32), ROWS)
    made.run_for(100 * MS)
    made.leave_host(0, "pre-emption", 300 * MS)
    made.run_for(290 * MS)
    (island,) = made.machine.state.islands
    assert not run.ended
    assert not island.leaving
    made.run_for(20 * MS)
    assert island.leaving == {0: "pre-emption"}, "what is in flight there ends first, as ever"


def test_a_host_that_says_so_twice_has_no_more_time() -> None:
    made, a = begun(hosts=4)
    a.whole()
    assert made.run()
    made.leave_host(0, "pre-emption", LONG)
    made.run_for(1)
    until = made.machine.drains.under_way
    made.leave_host(0, "pre-emption", 2 * LONG)
    assert all(each.until <= LONG + made.now for each in until.values())
    assert made.run_until(lambda: not made.hosts[0].alive)


# --- and an operator -------------------------------------------------------------------------------------------------


def leaving() -> tuple[World, Arrays]:
    """Host 0 has asked to leave, and what is in flight there takes longer than it waits."""
    made, a = begun(hosts=4)
    made.fabric.slow[0] = 1e9
    a.run("long", WHOLE, bytes(32), ROWS)
    made.run_for(100 * MS)
    made.leave_host(0, "pre-emption", LONG)
    made.run_for(100 * MS)
    return made, a


def operate(made: World, host: int, action: str) -> str:
    made.controller.feed(e.OperateHost(host, action))  # type: ignore[arg-type]
    return made.answer


def test_it_gets_no_new_slices_and_is_not_cordoned_by_anyone() -> None:
    made, _ = leaving()
    assert made.machine.resources.is_cordoned(0)
    assert operate(made, 1, "cordon") == ""
    assert made.machine.snapshot().cordoned == (1,), "what the next start is told, too"
    assert operate(made, 0, "uncordon") == "host 0 is not cordoned"


@pytest.mark.parametrize(("actions", "cordoned"), [(["cordon"], True), (["cordon", "uncordon"], False)])
def test_a_cordon_meanwhile_is_for_when_it_comes_back_and_it_leaves_all_the_same(
    actions: list[str], cordoned: bool
) -> None:
    made, _ = leaving()
    for action in actions:
        assert operate(made, 0, action) == ""
        assert made.machine.resources.is_cordoned(0)
    made.run_for(LONG)
    (island,) = made.machine.state.islands
    assert island.leaving == {0: "pre-emption"}
    made.crash_host(0)
    made.run_for(S)
    assert made.machine.resources.is_cordoned(0) == cordoned
    assert made.machine.snapshot().cordoned == ((0,) if cordoned else ())


@pytest.mark.parametrize("first", [True, False], ids=["the operator", "the host"])
def test_one_that_asks_and_that_an_operator_drains_leaves_in_time_and_does_not_come_back(first: bool) -> None:
    made, a = begun(hosts=4)
    made.fabric.slow[0] = 1e9
    a.run("long", WHOLE, bytes(32), ROWS)
    made.run_for(100 * MS)
    if first:
        assert operate(made, 0, "drain") == ""
    made.leave_host(0, "pre-emption", LONG)
    made.run_for(100 * MS)
    if not first:
        assert operate(made, 0, "drain") == ""
    made.run_for(LONG)
    assert list(made.machine.state.drained) == [0]
    (island,) = made.machine.state.islands
    assert list(island.leaving) == [0]


def test_one_that_asks_leaves_though_an_operator_does_not_want_it_drained_any_more() -> None:
    made, a = begun(hosts=4)
    made.fabric.slow[0] = 1e9
    a.run("long", WHOLE, bytes(32), ROWS)
    made.run_for(100 * MS)
    assert operate(made, 0, "drain") == ""
    made.leave_host(0, "pre-emption", LONG)
    made.run_for(100 * MS)
    assert operate(made, 0, "uncordon") == ""
    made.run_for(LONG)
    (island,) = made.machine.state.islands
    assert island.leaving == {0: "pre-emption"}
    assert not made.machine.state.drained

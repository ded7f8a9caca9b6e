"""A host whose link to the controller has ended: what it says to the next controller begins with its Join."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.model.spans import Spans
from core.protocol.effects import Connected, Disconnected, Finished, LeaveRequested, Reformed, Send
from core.protocol.messages import Join, Leave, Seated
from core.protocol.peers import CONTROLLER

from .onehost import chain, enter
from .test_host import Rig, header, kinds


def test_ends_without_a_connection_are_reported_by_the_join_and_by_nothing_before_it() -> None:
    rig = Rig()
    rig.run(chain(1), enter(1), literal=True)
    assert rig.hear(Disconnected(CONTROLLER)) == []
    assert "Reports" not in kinds(rig.hear(Finished(1), 10_000))
    (said,) = rig.hear(Connected(CONTROLLER), 20_000)
    assert isinstance(said, Send)
    assert isinstance(said.message, Join)
    assert said.message.unfinished == ()


def test_a_request_to_leave_is_repeated_to_the_next_controller() -> None:
    rig = Rig()
    rig.hear(Disconnected(CONTROLLER))
    assert rig.hear(LeaveRequested("maintenance")) == []
    join, leave = rig.hear(Connected(CONTROLLER))
    assert kinds([join]) == ["Join"]
    assert leave == Send((CONTROLLER,), Leave(0, "maintenance"))


@pytest.mark.parametrize(("after", "left"), [(10_000, 20_000), (40_000, 0)])
def test_the_next_controller_has_no_more_time_to_let_it_leave_than_is_left(after: int, left: int) -> None:
    rig = Rig()
    rig.hear(LeaveRequested("maintenance", 30_000), 5_000)
    rig.hear(Disconnected(CONTROLLER), 6_000)
    *_, leave = rig.hear(Connected(CONTROLLER), 5_000 + after)
    assert leave == Send((CONTROLLER,), Leave(0, "maintenance", left))


def test_between_its_join_and_the_next_seat_it_takes_no_orders() -> None:
    """A new controller would never hear of what an order of the old one makes here. A controller that knows of the
    order sends it again behind the seat."""
    rig = Rig()
    rig.hear(Disconnected(CONTROLLER))
    rig.hear(Connected(CONTROLLER), 20_000)
    late = rig.run(chain(1), enter(1), literal=True)
    assert kinds(late) == ["LogLine"]
    seated = rig.come(CONTROLLER, replace(rig.seat(tree=1), last=0))
    (said,) = [each for each in seated if isinstance(each, Send)]
    assert isinstance(said.message, Seated)
    assert said.message.last == 0
    again = replace(rig.order(enter(1), plans=(chain(1),), runs=(header(chain(1)),)), tree=1)
    assert "Launch" in kinds(rig.come(CONTROLLER, again))


@pytest.mark.parametrize("children", [((1, ((1, 2),)),), ()])
def test_when_a_neighbour_in_the_tree_restarts_the_island_is_seated_again(
    children: tuple[tuple[int, Spans], ...],
) -> None:
    """What was on the old link is lost, and the new process does not know that there was anything."""
    rig = Rig(children=children, seated=False)
    parent = CONTROLLER if children else 1
    rig.come(CONTROLLER, replace(rig.seat(), parent=parent))
    rig.hear(Reformed(0))
    said = rig.hear(Disconnected(1, "it began anew", True))
    assert kinds(said) == ["Join"]
    assert kinds(rig.hear(Disconnected(7, "it began anew", True))) == []

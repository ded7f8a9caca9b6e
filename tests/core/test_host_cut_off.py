"""A host whose link to the controller has ended: what it says to the next begins with its Join."""

from __future__ import annotations

from core.effects import Connected, Disconnected, Finished, LeaveRequested, Send
from core.messages import Join, Leave
from core.peers import CONTROLLER

from .onehost import chain, enter
from .test_host import Rig, kinds


def test_what_ends_while_nobody_listens_is_told_by_the_join_and_by_nothing_before_it() -> None:
    rig = Rig()
    rig.run(chain(1), enter(1), literal=True)
    assert rig.hear(Disconnected(CONTROLLER)) == []
    assert "Reports" not in kinds(rig.hear(Finished(1), 10_000))
    (said,) = rig.hear(Connected(CONTROLLER), 20_000)
    assert isinstance(said, Send)
    assert isinstance(said.message, Join)
    assert said.message.unfinished == ()


def test_a_wish_to_leave_is_said_again_to_who_comes_next() -> None:
    rig = Rig()
    rig.hear(Disconnected(CONTROLLER))
    assert rig.hear(LeaveRequested("maintenance")) == []
    join, leave = rig.hear(Connected(CONTROLLER))
    assert kinds([join]) == ["Join"]
    assert leave == Send((CONTROLLER,), Leave(0, "maintenance"))

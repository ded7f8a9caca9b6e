"""The tree in which the controller sees a cohort: its first host speaks for all."""

import pytest

from core.controller import Controller
from core.model import small, spans
from core.model.spans import Spans
from core.protocol.effects import Close, Command, FormWorld, MessageReceived, Send, WorldUp
from core.protocol.messages import Heartbeat, Join, Report, Reports, Seat, Seated
from sim.cohort import one_root

HOSTS = 6
ALL: Spans = ((0, HOSTS),)


@pytest.mark.parametrize("members", [ALL, ((3, 4),), ((0, 2), (5, 9))])
def test_the_first_host_is_above_all_others(members: Spans) -> None:
    made = one_root(members)
    first = members[0][0]
    assert made.roots == (first,)
    assert made.below(first) == members
    heard = [first, *(host for host, below in made.children(first) if below == spans.one(host))]
    assert heard == list(spans.items(members))
    assert [made.depth(host) for host in heard] == [0] + [1] * (len(heard) - 1)


def running() -> Controller:
    controller = Controller(small(HOSTS, 1), shape=one_root)
    events: list[MessageReceived | WorldUp] = [MessageReceived(host, Join(host, 0)) for host in range(HOSTS)]
    while events:
        for command in controller.handle(events.pop(0), 0):
            if isinstance(command, FormWorld):
                events.append(WorldUp(command.island, command.epoch))
            elif isinstance(command, Send) and isinstance(command.message, Seat):
                seat = command.message
                events.append(MessageReceived(seat.host, Seated(seat.host, seat.epoch, seat.tree, seat.last)))
    return controller


def said(controller: Controller, host: int, report: Report) -> list[Command]:
    island = controller.state.islands[0]
    return controller.handle(MessageReceived(host, Reports(0, island.epoch, island.tree_number, (report,))), 1)


def test_a_controller_hears_the_first_host_for_all() -> None:
    controller = running()
    assert said(controller, 0, Heartbeat(ALL, 1)) == []
    assert controller.members(0) == ALL


def test_a_controller_hears_no_other_host() -> None:
    controller = running()
    closed = [command.peer for command in said(controller, 3, Heartbeat(ALL, 1)) if isinstance(command, Close)]
    assert closed == [3]
    assert controller.members(0) == ((0, 3), (4, HOSTS))

"""A host as a whole: relay, executor and transfer of one machine, seen only through its connections and devices."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core import protocol as p
from core.host.host import Host
from core.model.errors import Illegal
from core.model.plan import Plan
from core.protocol.dataplane import Chunk, Grant
from core.protocol.peers import CONTROLLER, client, end_of, is_client, peer_of
from tests.core.hostworld import HOSTS, Cluster

from .onehost import X, chain, enter, inbound, recv

BEAT = 1000


class Rig:
    """Host 0 of two, with host 1 as its child unless told otherwise, and already seated unless told otherwise."""

    def __init__(self, children: tuple[tuple[int, Any], ...] = (), seated: bool = True) -> None:
        self.host = Host(0, Cluster(), incarnation=5, beat=BEAT)
        self.children = children
        self.number = 0
        if seated:
            self.come(CONTROLLER, self.seat())
            assert self.hear(p.Reformed(0)) == [p.Send((CONTROLLER,), p.Seated(0, 0, 0, 0), (("reformed", 0),))]

    def seat(self, epoch: int = 0, tree: int = 0, **more: Any) -> p.Seat:
        return p.Seat(0, epoch, tree, 0, CONTROLLER, self.children, HOSTS, 0, **more)

    def hear(self, event: p.Event, now: int = 0) -> list[p.Command]:
        return self.host.handle(event, now)

    def come(self, peer: int, message: Any) -> list[p.Command]:
        return self.hear(p.MessageReceived(peer, message))

    def order(self, *steps: p.Step, plans: tuple[Plan, ...] = (), runs: tuple[p.RunHeader, ...] = ()) -> p.Ordered:
        self.number += 1
        return p.Ordered(0, 0, 0, self.number, HOSTS, 0, plans, runs, tuple(steps))

    def run(self, plan: Plan, *steps: p.Step, literal: bool = False) -> list[p.Command]:
        return self.come(CONTROLLER, self.order(*steps, plans=(plan,), runs=(header(plan, literal),)))


def header(plan: Plan, literal: bool = True) -> p.RunHeader:
    return p.RunHeader(1, plan.id, 100, (100,), ((0, b"contents"),)) if literal else p.RunHeader(1, plan.id, 100, ())


def kinds(effects: list[p.Command]) -> list[str]:
    return [type(each.message).__name__ if isinstance(each, p.Send) else type(each).__name__ for each in effects]


def reports(*said: Any) -> p.Reports:
    return p.Reports(0, 0, 0, said)


# --- joining and seats ----------------------------------------------------------------------------------


def test_a_host_introduces_itself_to_each_controller_that_it_is_connected_to() -> None:
    rig = Rig(seated=False)
    assert rig.hear(p.Connected(CONTROLLER)) == [p.Send((CONTROLLER,), p.Join(0, 5))]
    assert rig.hear(p.Connected(1)) == []
    rig = Rig()
    rig.run(chain(1), enter(1), literal=True)
    (said,) = rig.hear(p.Connected(CONTROLLER))
    assert isinstance(said, p.Send)
    assert isinstance(said.message, p.Join)
    assert replace(said.message, held=()) == p.Join(0, 5, epoch=0, last=1, unfinished=(1,))
    assert [(held.buffer, held.client, held.ready) for held in said.message.held] == [(101, 0, False)]  # of no client


def test_a_host_takes_a_seat_and_says_so_when_its_devices_have_reformed() -> None:
    rig = Rig(seated=False)
    assert rig.come(CONTROLLER, rig.seat()) == [p.Reform(0, HOSTS, (), (("seat", 0),))]
    assert kinds(rig.hear(p.Reformed(0))) == ["Seated"]


def test_only_the_controller_may_give_a_seat_and_only_for_this_host() -> None:
    rig = Rig(seated=False)
    assert kinds(rig.come(1, rig.seat())) == ["Close"]
    for_another = p.Seat(0, 0, 0, 1, CONTROLLER, (), HOSTS, 0)
    assert kinds(rig.come(CONTROLLER, for_another)) == ["Close"]
    assert kinds(rig.come(CONTROLLER, rig.seat())) == ["Reform"]


def test_a_seat_that_was_overtaken_by_a_newer_one_is_not_taken() -> None:
    rig = Rig()
    rig.come(CONTROLLER, rig.seat(epoch=0, tree=3))
    assert kinds(rig.come(CONTROLLER, rig.seat(epoch=0, tree=2))) == ["LogLine"]


def test_a_host_can_ask_to_leave() -> None:
    rig = Rig()
    assert rig.hear(p.LeaveRequested("maintenance")) == [p.Send((CONTROLLER,), p.Leave(0, "maintenance"))]


def test_a_dismissed_host_stops_and_says_nothing_more() -> None:
    rig = Rig()
    assert kinds(rig.come(1, p.Dismiss(0, "a joke"))) == []
    assert rig.come(CONTROLLER, p.Dismiss(0, "you are late")) == [p.Stop("you are late")]
    assert rig.come(CONTROLLER, rig.order()) == []
    assert rig.host.next_wakeup() is None


# --- gangs ----------------------------------------------------------------------------------------------


def test_a_gang_arrives_is_launched_and_its_end_is_reported() -> None:
    rig = Rig()
    effects = rig.run(chain(2), enter(1), enter(2, 1), literal=True)
    assert [each.seq for each in effects if isinstance(each, p.Launch)] == [1, 2]
    assert rig.hear(p.Finished(1))[-1] == p.Send((CONTROLLER,), reports(p.Done(1, ((0, 1),))))


def test_gangs_that_end_together_are_reported_in_one_message_in_their_order() -> None:
    rig = Rig()
    rig.run(chain(2), enter(1), enter(2, 1), literal=True)
    said = rig.hear(p.FinishedTogether((p.Finished(1), p.Finished(2))))
    assert [each for each in said if isinstance(each, p.Send)] == [
        p.Send((CONTROLLER,), reports(p.Done(1, ((0, 1),)), p.Done(2, ((0, 1),))))
    ]


def test_a_message_for_its_child_is_passed_on_as_the_same_object_and_reports_are_combined() -> None:
    rig = Rig(children=((1, ((1, 2),)),))
    order = rig.order(enter(1), plans=(chain(1),), runs=(header(chain(1)),))
    effects = rig.come(CONTROLLER, order)
    assert kinds(effects) == ["Ordered", "MakeBuffer", "Launch"]
    assert isinstance(effects[0], p.Send)
    assert effects[0].peers == (1,)
    assert effects[0].message is order
    assert "Reports" not in kinds(rig.hear(p.Finished(1)))
    assert rig.come(1, reports(p.Done(1, ((1, 2),)))) == [p.Send((CONTROLLER,), reports(p.Done(1, HOSTS)))]


def test_an_order_by_an_old_path_is_not_obeyed() -> None:
    rig = Rig()
    stale = p.Ordered(0, 0, -1, 1, HOSTS, 0, (chain(1),), (header(chain(1)),), (enter(1),))
    (told,) = rig.come(CONTROLLER, stale)
    assert isinstance(told, p.LogLine)


def test_a_host_sends_heartbeats() -> None:
    rig = Rig()
    assert rig.host.next_wakeup() == BEAT
    assert rig.hear(p.Wakeup(), BEAT) == [p.Send((CONTROLLER,), reports(p.Heartbeat(((0, 1),), 0)))]
    assert rig.host.next_wakeup() == 2 * BEAT


# --- transfers ------------------------------------------------------------------------------------------


def test_incoming_contents_release_the_gang_that_waits_for_them() -> None:
    rig = Rig()
    effects = rig.run(inbound(), recv(1, 1), enter(2, 1))
    made, opened, _, grant = effects
    assert isinstance(made, p.MakeBuffer)
    assert isinstance(opened, p.OpenRecv)  # the driver knows of it before anything is granted
    assert isinstance(grant, p.Send)
    assert isinstance(grant.message, Grant)
    (sender,) = grant.peers
    total = 0
    for number, (_, piece, nbytes) in enumerate(opened.pieces):
        chunk = Chunk(1, sender, 0, piece, 0, nbytes)
        total += nbytes
        said = rig.come(sender, chunk)
        assert said[0] == p.Fill(chunk)
        last = number == len(opened.pieces) - 1
        assert kinds(said) == (["Fill", "Received", "Launch", "Landed", "Reports"] if last else ["Fill"])
    assert total == grant.message.nbytes


def test_clients_and_controller_are_told_apart() -> None:
    """On the data plane client 1 is -1, which among peers is the controller."""
    rig = Rig()
    put = p.RecvStep(1, -1, 50, HOSTS, 1, -1, 1, 9, X)
    effects = rig.come(CONTROLLER, rig.order(put))
    (grant,) = [each for each in effects if isinstance(each, p.Send)]
    assert grant.peers == (client(1),) == (-2,)
    assert isinstance(grant.message, Grant)
    assert grant.message.sender == -1
    assert any(isinstance(each, p.Received) for each in rig.hear(p.Disconnected(client(1))))
    assert not any(isinstance(each, p.Received | p.Sent) for each in rig.hear(p.Disconnected(CONTROLLER)))


@pytest.mark.parametrize("end", [0, 7, -1, -5])
def test_ends_of_transfers_and_peers_are_two_names_of_the_same_processes(end: int) -> None:
    assert end_of(peer_of(end)) == end
    assert is_client(peer_of(end)) == (end < 0)
    assert peer_of(end) != CONTROLLER


# --- nonsense -------------------------------------------------------------------------------------------


def test_a_peer_that_sends_a_message_not_meant_for_hosts_is_closed() -> None:
    rig = Rig()
    assert rig.come(1, p.Cancel(3)) == [p.Close(1, "a host takes no Cancel")]
    assert kinds(rig.come(client(4), Grant(1, 0, -3, 5))) == ["Close"]  # it speaks for another client


def test_an_event_that_its_own_driver_cannot_mean_is_illegal() -> None:
    rig = Rig()
    with pytest.raises(Illegal):
        rig.hear(p.Send((1,), p.Cancel(1)))  # type: ignore[arg-type]
    with pytest.raises(Illegal):
        rig.hear(p.CodeReady(4, 2))

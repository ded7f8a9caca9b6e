"""A host's seat: what it reports again, what it gives up, when it re-forms; and how it treats nonsense."""

from __future__ import annotations

from typing import Any

import pytest

from core import protocol as p
from core.host import Executor
from core.model.errors import Illegal
from core.model.plan import Gang, Move
from tests.core.hostworld import HOSTS, Cluster, gang, layout, plan

from .onehost import BAD, FAR, ME, NEAR, Host, X, chain, done, enter, inbound, outbound, recv, report, seat, send

# --- seats -----------------------------------------------------------------------------------------------


def test_a_new_tree_is_told_again_all_that_is_not_settled() -> None:
    host = Host()
    host.run(outbound(sparse=True))
    host.read(enter(1), send(2, 1), p.CompileStep(1, (0,)), enter(3, 2, ack=True))
    host.hear(p.Finished(1))
    host.hear(p.RowsCounted(2, ((2, 0, 8),)))
    host.hear(p.CodeReady(1, 0))
    again = host.hear(seat(tree=4))
    assert [e.report for e in again if isinstance(e, p.ToController)] == [
        p.Done(1, ME), p.PieceCounts(2, ME, ((2, 1),)), p.Enqueued(3, ME), p.Compiled(1, 0, ME), p.Seated(0, 0, 4, 2),
    ]  # fmt: skip
    host.hear(p.Finished(3))
    host.settled = 2
    host.read()
    again = host.hear(seat(tree=5))
    assert [e.report for e in again if isinstance(e, p.ToController)] == [
        p.PieceCounts(2, ME, ((2, 1),)), p.Done(3, ME), p.Compiled(1, 0, ME), p.Seated(0, 0, 5, 3),
    ]  # fmt: skip


def test_an_abandoned_gang_leaves_a_tombstone_and_those_behind_it_go_on() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1), enter(4, 2), enter(5, 2))
    effects = host.hear(seat(tree=1, abandon=(3,)))
    assert [e.seq for e in effects if isinstance(e, p.Launch)] == [4, 5]
    host.hear(p.Received(1))
    assert host.read(p.AskStep(3)) == []


def test_memory_that_a_tombstone_would_have_taken_over_is_freed() -> None:
    steps: list[Gang | Move] = [Move("in", (0,), (1,), False, 0), gang("reader", NEAR, (1,), (2,))]
    made = plan(1, [layout(FAR), X, X], steps, keep=(2,), donate=True)
    host = Host()
    host.run(made)
    host.read(recv(2, 1), enter(3, 1))
    assert [type(effect) for effect in host.hear(seat(tree=1, abandon=(3,)))] == [
        p.ToController
    ]  # it is still being filled
    assert [e.buffer for e in host.hear(p.Received(1)) if isinstance(e, p.FreeBuffer)] == [101]


def test_a_gang_that_was_abandoned_before_it_arrived_is_not_launched_when_it_does() -> None:
    """Its peers have dropped it. The message was lost with the old tree and came again down the new one."""
    host = Host()
    host.run(inbound())
    host.hear(seat(tree=1, abandon=(4,)))
    assert host.read(enter(4, 2)) == []
    assert [type(e) for e in host.read(enter(5, 2))] == [p.Launch]


def test_an_abandoned_launch_is_given_up_and_may_still_finish() -> None:
    host = Host()
    host.run(outbound())
    host.read(enter(1), send(2, 1))
    gave_up, opened, seated = host.hear(seat(tree=1, abandon=(1,)))
    assert gave_up == p.Abandon((1,), (("seat", 1),))
    assert isinstance(opened, p.OpenSend)
    assert opened.blame is not None
    assert seated == p.ToController(p.Seated(0, 0, 1, 2), (("seat", 1),))
    assert host.hear(p.Finished(1)) == []


def test_an_abandoned_transfer_is_dropped() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1))
    assert isinstance(host.hear(seat(tree=1, abandon=(2,)))[0], p.DropTransfer)
    host.hear(seat(tree=2, abandon=(7,)))
    assert isinstance(host.read(recv(7, 6))[-1], p.DropTransfer)


def test_lost_buffers_are_freed() -> None:
    host = Host()
    host.put(50)
    assert host.hear(seat(tree=1, dropped=(50, 51)))[0] == p.FreeBuffer(50, (("seat", 1),))


def test_a_step_that_names_a_lost_buffer_is_blamed_on_the_loss_and_breaks_no_rule() -> None:
    """It was ordered before the loss. Its message was lost with the old tree, and came again through the new one."""
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    host.hear(seat(tree=1, dropped=(50, 101)))
    launched, ended = host.read(enter(1), p.SendStep(2, -1, 50, HOSTS, 2, 7))
    assert isinstance(launched, p.Launch)
    assert launched.placeholders
    over = report(p.Done, ended)
    assert over.blame is not None
    assert over.blame.code == "host-lost"
    assert p.FreeBuffer(101, (("order", 4), ("done", 1))) in host.hear(p.Finished(1))  # no other step frees it
    assert over in [e.report for e in host.hear(seat(tree=2)) if isinstance(e, p.ToController)]


def test_a_new_epoch_forms_when_the_devices_are_idle_and_nothing_is_launched_before() -> None:
    host = Host()
    host.run(inbound())
    host.read(enter(4, 2), recv(5, 1), enter(6, 1))
    assert host.hear(seat(epoch=1, tree=1)) == []
    assert host.hear(p.Received(1)) == [done(5, ("recv", 1))]
    assert host.hear(p.Finished(4)) == [done(4, ("done", 4)), p.Reform(1, HOSTS, (), (("seat", 1), ("done", 4)))]
    *again, seated, launched = host.hear(p.Reformed(1))
    assert [
        each.report.seq for each in again if isinstance(each, p.ToController) and isinstance(each.report, p.Done)
    ] == [4, 5]
    assert seated == p.ToController(p.Seated(0, 1, 1, 2), (("reformed", 1),))
    assert isinstance(launched, p.Launch)


def test_an_older_epoch_is_refused() -> None:
    host = Host()
    host.hear(seat(epoch=3, tree=1))
    host.hear(p.Reformed(3))
    for message in (seat(epoch=2, tree=9), p.Ordered(0, 0, 0, 1, HOSTS, 0, (), (), ())):
        report(p.HostFault, *host.hear(message))


def test_a_host_introduces_itself_with_clients_buffers_and_unfinished_work() -> None:
    host = Host()
    host.put(50, name=3)
    host.run(chain(1), args=(50,), kept=((1, 8, 4),))
    host.read(enter(1))
    assert host.executor.describe() == p.Join(
        0, 5, 0, 4, (p.Held(50, 7, 3, X, True), p.Held(101, 8, 4, X, False)), (1,)
    )


# --- nonsense --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        send(2, run=77), recv(2, 1), p.SendStep(2, -1, 50, HOSTS, 2, 7), p.SpillStep(2, 50, HOSTS),
        p.RestoreStep(2, 50, HOSTS), p.RecvStep(2, -1, 50, HOSTS, 2, -1, 7),
    ],
)  # fmt: skip
def test_an_invalid_step_is_reported_and_ends_with_a_blame(step: p.Step) -> None:
    trouble, ended = Host().read(step)
    fault = report(p.HostFault, trouble)
    over = report(p.Done, ended)
    assert fault.blame == over.blame
    assert fault.blame.code == "protocol"


def test_an_invalid_gang_is_reported_and_stops_the_queue() -> None:
    host = Host()
    host.run(inbound())
    report(p.HostFault, *host.read(enter(3, run=77)))
    assert host.read(enter(4, 2)) == []
    assert [e.seq for e in host.hear(seat(tree=1, abandon=(3,))) if isinstance(e, p.Launch)] == [4]


def test_a_run_without_its_arguments_is_reported() -> None:
    host = Host()
    host.run(chain(1), args=(50,))
    report(p.HostFault, *host.read(runs=(p.RunHeader(5, 1, 0, ()),)))


def test_a_run_of_an_unknown_plan_is_ignored_until_a_step_of_it_arrives() -> None:
    """One message is for all hosts that any part of it is for."""
    host = Host()
    assert host.read(runs=(p.RunHeader(5, 99, 0, ()),)) == []
    report(p.HostFault, *host.read(enter(3, run=5)))


@pytest.mark.parametrize(
    "event",
    [
        p.Finished(3), p.Finished(99), p.LaunchFailed(3, BAD), p.Received(99), p.Sent(2), p.Sent(99), p.Copied(3),
        p.RowsCounted(2, ()), p.CodeReady(1, 0), p.Reformed(0), p.Reformed(1), "what",
    ],
    ids=str,
)  # fmt: skip
def test_an_impossible_event_of_its_own_devices_is_illegal_and_changes_nothing(event: Any) -> None:
    host = Host()
    host.run(outbound())
    host.read(enter(1), send(2, 1))
    before = host.executor.describe()
    with pytest.raises(Illegal):
        host.hear(event)
    assert host.executor.describe() == before
    assert [type(e) for e in host.hear(p.Finished(1))] == [p.ToController, p.OpenSend]


def test_the_kind_of_launch_queue_must_be_a_known_name() -> None:
    with pytest.raises(Illegal):
        Executor(0, Cluster(), lane="fast")


def test_forgotten_runs_take_no_memory() -> None:
    host = Host()
    host.put(50)
    host.run(chain(2), args=(50,))
    host.read(enter(1), enter(2, 1), p.FreeStep((102, 50)), p.ForgetStep((1,), (1,)))
    host.hear(p.Finished(1))
    host.hear(p.Finished(2))
    host.settled = 3
    host.read()
    state = host.executor._state
    for kept in (state.runs, state.plans, state.gangs, state.buffers):
        assert not kept
    assert not state.records
    assert not state.pending


def test_a_run_is_forgotten_when_its_last_step_is_settled() -> None:
    """No message has to say so: a session of a million runs takes no memory for those that are over."""
    host = Host()
    host.put(50)
    host.run(chain(2), args=(50,))
    host.read(enter(1))
    host.hear(p.Finished(1))
    host.settled = 2
    host.read()
    assert host.executor.plan_of(1) is not None  # its second step is to come
    host.read(enter(2, 1))
    host.hear(p.Finished(2))
    host.settled = 3
    assert host.executor.plan_of(1) is not None
    host.read()
    assert host.executor.plan_of(1) is None
    assert not host.executor._state.runs
    assert not host.executor._state.ended_runs

"""One host follows its island's stream: it works in that order, and reports when it is done.

Host 0 has devices 0 and 1, host 1 devices 2 and 3; together they are island 0. Host 2 is elsewhere.
"""

from __future__ import annotations

import pytest

from core import protocol as p
from core.host import Executor, code_cause
from core.model import Illegal, receives_by_host, sends_by_host
from core.model.place import line
from core.model.plan import Gang, Layout, Move
from core.model.program import Sharding
from tests.core.hostworld import HOSTS, Cluster, gang, layout, plan

from .onehost import (
    BAD,
    FAR,
    ME,
    NEAR,
    Host,
    X,
    chain,
    done,
    enter,
    inbound,
    launch,
    outbound,
    recv,
    report,
    seat,
    send,
)

# --- launches --------------------------------------------------------------------------------------------


def test_a_gang_is_launched_when_it_is_read_and_reported_when_it_has_finished() -> None:
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    assert host.read(enter(1)) == [launch(1, 0, (50,), (101,), ("order", 4))]
    assert host.hear(p.Finished(1, None, (3,))) == [done(1, ("done", 1), sizes=(3,))]


def test_a_gang_does_not_wait_for_inputs_that_earlier_launches_make() -> None:
    host = Host()
    host.put(50)
    host.run(chain(3), args=(50,))
    assert host.read(enter(1), enter(2, 1), enter(3, 2)) == [
        launch(1, 0, (50,), (101,), ("order", 4)),
        launch(2, 1, (101,), (102,), ("order", 4)),
        launch(3, 2, (102,), (103,), ("order", 4)),
    ]


def test_what_is_for_other_hosts_is_only_passed_on() -> None:
    host = Host()
    host.run(inbound())
    assert host.read(p.GangStep(1, 1, 2, ((1, 2),))) == []
    assert host.hear(p.Ordered(0, 0, 0, 3, ((1, 2),), 0, (), (), (enter(1, run=77),))) == []


def test_an_input_from_elsewhere_holds_the_launch_and_all_behind_it() -> None:
    host = Host()
    host.run(inbound())
    held = host.read(recv(2, 1), enter(3, 1), enter(4, 2))
    assert [type(effect) for effect in held] == [p.MakeBuffer, p.OpenRecv, p.Prepare]
    assert held[2] == p.Prepare(3, 1, 1, (("order", 2),))
    assert host.hear(p.Received(1)) == [
        done(2, ("recv", 1)),
        launch(3, 1, (101,), (102,), ("order", 2), ("recv", 1)),
        launch(4, 2, (), (103,), ("order", 2), ("launch", 3)),
    ]


def test_steps_behind_a_held_launch_name_it_until_it_is_settled() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1))
    host.hear(p.Received(1))
    assert host.read(enter(4, 2)) == [launch(4, 2, (), (103,), ("order", 3), ("launch", 3))]
    host.hear(p.Finished(3))
    host.hear(p.Finished(4))
    host.settled = 5
    host.run(inbound(), run=2, base=200)
    assert host.read(enter(5, 2, run=2)) == [p.Launch(5, 2, 2, (), (203,), (), (), False, (("order", 5),))]


def test_with_queues_by_device_a_held_launch_holds_only_its_own_devices() -> None:
    zero, one = line(0, 0, 1), line(0, 1, 1)
    steps: list[Gang | Move] = [
        Move("in", (0,), (1,), False, 0),
        gang("held", zero, (1,), (2,)),
        gang("free", one, (), (3,)),
    ]
    made = plan(1, [layout(FAR), layout(zero), layout(zero), layout(one)], steps, keep=(2, 3))
    for lane, launched in (("host", 0), ("device", 1)):
        host = Host(lane)
        host.run(made)
        effects = host.read(recv(2, 1), enter(3, 1), enter(4, 2))
        assert [e.seq for e in effects if isinstance(e, p.Launch)] == [4] * launched


def test_a_thousand_held_launches_need_no_recursion() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1), *(enter(seq, 2) for seq in range(4, 3000)))
    assert [e.seq for e in host.hear(p.Received(1)) if isinstance(e, p.Launch)] == list(range(3, 3000))


def test_sequential_dispatch_is_told_of_each_enqueue() -> None:
    host = Host()
    host.run(inbound())
    assert host.read(enter(4, 2, ack=True))[1] == p.ToController(p.Enqueued(4, ME), (("launch", 4),))


def test_the_watchdog_is_answered_when_the_gang_has_launched() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1), enter(4, 2))
    assert host.read(p.AskStep(4), p.AskStep(99)) == []
    assert host.hear(p.Received(1))[-1] == p.ToController(p.Arrived(4, ME), (("order", 3), ("launch", 4)))
    assert host.read(p.AskStep(4)) == [p.ToController(p.Arrived(4, ME), (("order", 4), ("launch", 4)))]


def test_devices_are_told_of_a_cut_when_they_have_the_gang() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1), enter(4, 2))
    assert host.read(p.CutStep(4), p.CutStep(99)) == []
    assert host.hear(p.Received(1))[-1] == p.Cut(4, (("order", 3), ("launch", 4)))
    assert host.read(p.CutStep(4)) == [p.Cut(4, (("order", 4), ("launch", 4)))]


def test_devices_are_told_of_a_cut_whether_or_not_the_gang_is_over() -> None:
    """What a host commands does not depend on whether the word or the end of the gang comes first."""
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    host.read(enter(1))
    assert host.hear(p.Finished(1, None, (2,))) == [done(1, ("done", 1), sizes=(2,))]
    assert host.read(p.CutStep(1)) == [p.Cut(1, (("order", 5),))]


def test_devices_are_not_told_of_a_cut_of_a_gang_that_was_given_up_before_they_had_it() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1))
    host.hear(seat(tree=1, abandon=(3,)))
    assert host.read(p.CutStep(3)) == []


# --- poison ----------------------------------------------------------------------------------------------


def test_a_gang_with_a_spoilt_input_is_launched_with_placeholders_and_spoils_its_outputs() -> None:
    host = Host()
    host.run(chain(2), args=(50,))
    host.read(p.RecvStep(1, -1, 50, HOSTS, 1, -1, 7, 0, X), enter(2), enter(3, 1))
    effects = host.hear(p.Received(1, BAD))
    assert [e.placeholders for e in effects if isinstance(e, p.Launch)] == [True, True]
    assert done(2, ("done", 2), BAD) in host.hear(p.Finished(2))
    assert done(3, ("done", 3), BAD) in host.hear(p.Finished(3))


def test_a_settled_failure_is_known_at_the_launch_of_a_reader() -> None:
    host = Host()
    host.put(50)
    host.run(chain(2), args=(50,))
    host.read(enter(1))
    host.hear(p.Finished(1, BAD))
    host.settled = 2
    (effect,) = host.read(enter(2, 1))
    assert isinstance(effect, p.Launch)
    assert effect.placeholders


def test_a_poisoned_transfer_is_dropped_and_the_transfer_machine_reports_its_end() -> None:
    host = Host()
    host.run(inbound())
    host.read(recv(2, 1), enter(3, 1))
    assert host.read(p.PoisonStep(1, BAD)) == [p.DropTransfer(1, BAD, (("order", 3),))]
    effects = host.hear(p.Received(1, BAD))
    assert effects[0] == done(2, ("recv", 1), BAD)
    assert isinstance(effects[1], p.Launch)
    assert effects[1].placeholders


def test_poison_for_an_unknown_or_past_transfer_is_ignored() -> None:
    assert Host().read(p.PoisonStep(77, BAD)) == []


def test_a_failed_launch_is_reported_at_once_and_nothing_is_launched_behind_it() -> None:
    """Its peers wait in their collective, and must not meet this host's next gang there."""
    host = Host()
    host.run(inbound())
    host.read(enter(4, 2))
    named = p.Blame("user", "boom", "prog", "other", 0)
    assert host.hear(p.LaunchFailed(4, BAD)) == [p.ToController(p.HostFault(0, 4, named), (("failed", 4),))]
    assert host.read(enter(5, 2)) == []
    effects = host.hear(seat(tree=1, abandon=(4,)))
    assert effects[0] == p.Abandon((4,), (("seat", 1),))
    assert [e.seq for e in effects if isinstance(e, p.Launch)] == [5]


def test_a_lost_device_is_reported_at_once() -> None:
    blame = p.Blame("device-lost", "gone", host=0)
    assert Host().hear(p.DeviceLost(1, p.Blame("device-lost", "gone"))) == [
        p.ToController(p.HostFault(0, -1, blame, 1), (("lost", 1),))
    ]


# --- buffers ---------------------------------------------------------------------------------------------


def test_a_run_begins_at_its_position_among_the_steps() -> None:
    """Its literals use memory that earlier steps free, and wait for gangs that came just before it."""
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    second = p.RunHeader(2, 1, 200, (-1,), ((0, b"abc"),), after=1, at=2)
    read = host.read(enter(1), p.FreeStep((50,)), enter(2, run=2), runs=(second,))
    assert [type(effect) for effect in read] == [p.Launch, p.Prepare]
    effects = host.hear(p.Finished(1))
    order, ended = ("order", 4), ("done", 1)
    assert effects[1:3] == [p.FreeBuffer(50, (order, ended)), p.MakeBuffer(200, X, b"abc", (order, ended))]
    assert [effect.seq for effect in effects if isinstance(effect, p.Launch)] == [2]


def test_the_last_reader_frees_the_runs_own_buffer_when_it_has_finished() -> None:
    host = Host()
    host.put(50)
    host.run(chain(2), args=(50,))
    host.read(enter(1), enter(2, 1))
    assert host.hear(p.Finished(1)) == [done(1, ("done", 1))]  # 50 belongs to its client
    assert host.hear(p.Finished(2)) == [done(2, ("done", 2)), p.FreeBuffer(101, (("done", 2),))]


def test_donated_inputs_vanish_with_the_launch_unless_they_are_held_elsewhere() -> None:
    steps = [gang("a", NEAR, (), (0,)), gang("b", NEAR, (0,), (1,))]
    made = plan(1, [X, X], steps, keep=(1,), donate=True)
    host = Host()
    host.run(made)
    assert host.read(enter(1), enter(2, 1))[1] == launch(2, 1, (100,), (101,), ("order", 2), donated=(100,))
    host.hear(p.Finished(1))
    assert host.hear(p.Finished(2)) == [done(2, ("done", 2))]
    host = Host()
    host.run(made)
    assert host.read(enter(1), enter(2, 1, donate=False))[1] == launch(2, 1, (100,), (101,), ("order", 2))
    host.hear(p.Finished(1))
    assert host.hear(p.Finished(2)) == [done(2, ("done", 2)), p.FreeBuffer(100, (("done", 2),))]


def test_a_value_that_moves_read_is_freed_when_all_reads_have_ended() -> None:
    host = Host()
    host.run(outbound())
    host.read(enter(1), send(2, 1), enter(3, 2))
    host.hear(p.Finished(1))
    host.hear(p.Finished(3))
    assert host.hear(p.Sent(2)) == [done(2, ("sent", 2)), p.FreeBuffer(100, (("done", 3), ("sent", 2)))]


def test_a_literal_is_made_where_it_is_used_and_freed_by_its_last_reader() -> None:
    host = Host()
    assert host.run(chain(1), args=(-1,), literals=((0, b"abc"),)) == [p.MakeBuffer(100, X, b"abc", (("order", 1),))]
    assert host.read(enter(1)) == [launch(1, 0, (100,), (101,), ("order", 2))]
    assert host.hear(p.Finished(1))[1] == p.FreeBuffer(100, (("done", 1),))


def test_free_waits_for_the_work_that_was_ordered_before_it() -> None:
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    host.read(enter(1), p.SendStep(2, -1, 50, HOSTS, 2, 7))
    assert host.read(p.FreeStep((50, 12345))) == []
    host.hear(p.Finished(1))
    assert host.hear(p.Sent(2))[1] == p.FreeBuffer(50, (("order", 5), ("done", 1), ("sent", 2)))


def test_a_freed_buffer_can_no_longer_be_named() -> None:
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    assert host.read(p.FreeStep((50,)), p.FreeStep((50,))) == [p.FreeBuffer(50, (("order", 4),))]
    trouble, effect = host.read(enter(1))
    fault = report(p.HostFault, trouble)
    assert fault.blame.code == "protocol"
    assert isinstance(effect, p.Launch)
    assert effect.placeholders  # on all hosts or on none


def test_a_spill_waits_for_readers_and_a_reader_waits_for_the_restore() -> None:
    host = Host()
    host.put(50)
    host.run(chain(1), args=(50,))
    host.read(enter(1), p.SpillStep(2, 50, HOSTS))
    assert host.hear(p.Finished(1))[1:] == [p.SpillBuffer(2, 50, (("order", 4), ("done", 1)))]
    assert host.hear(p.Copied(2)) == [done(2, ("done", 2))]
    host.run(chain(1), run=1, base=200, args=(50,))
    assert host.read(p.RestoreStep(3, 50, HOSTS, 1), enter(4)) == [
        p.RestoreBuffer(3, 50, (("order", 6), ("done", 2), ("done", 1))),
        p.Prepare(4, 1, 0, (("order", 6),)),
    ]
    assert host.hear(p.Copied(3)) == [done(3, ("done", 3)), launch(4, 0, (50,), (201,), ("order", 6), ("done", 3))]


# --- transfers -------------------------------------------------------------------------------------------


def test_a_send_opens_when_its_source_is_made() -> None:
    host = Host()
    host.run(outbound())
    assert [type(e) for e in host.read(enter(1), send(2, 1))] == [p.Launch]
    opened = host.hear(p.Finished(1))[1]
    assert isinstance(opened, p.OpenSend)
    assert (opened.transfer, opened.buffers, opened.blame) == (2, (100,), None)
    assert opened.causes == (("order", 2), ("done", 1))
    assert {receiver for receiver, _, _ in opened.pieces} == {2}
    assert sum(nbytes for _, _, nbytes in opened.pieces) == 16  # half of eight floats


def test_a_host_with_nothing_to_send_is_over_at_once() -> None:
    """Replicated over both hosts: one replica is enough for the other end, which takes from host 1."""
    whole = Sharding(((),))
    source = Layout((8,), "float32", NEAR, (4,), whole)
    target = Layout((8,), "float32", line(0, 2, 2), (2,), whole)
    made = plan(1, [source, target], [gang("g", NEAR, (), (0,)), Move("out", (0,), (1,), False, 0)])
    host = Host()
    host.run(made)
    assert host.read(enter(1), send(2, 1))[1:] == [done(2, ("order", 2))]
    assert host.hear(p.Finished(1))[1:] == [p.FreeBuffer(100, (("order", 2), ("done", 1)))]


def test_memory_for_a_receive_is_there_when_the_gang_before_it_has_finished() -> None:
    host = Host()
    host.run(inbound())
    assert [type(e) for e in host.read(enter(4, 2), recv(5, 1, after=4))] == [p.Launch]
    made, opened = host.hear(p.Finished(4))[1:]
    assert made == p.MakeBuffer(101, X, None, (("order", 2), ("done", 4)))
    assert isinstance(opened, p.OpenRecv)
    assert (opened.transfer, opened.seq, opened.buffers, opened.sparse) == (1, 5, (101,), False)
    assert sum(nbytes for _, _, nbytes in opened.pieces) == 16


def test_arrays_that_go_together_are_one_send_which_opens_when_the_last_is_made() -> None:
    there = layout(FAR)
    steps: list[Gang | Move] = [
        gang("one", NEAR, (), (0,)),
        gang("two", NEAR, (), (1,)),
        Move("out", (0, 1, 0), (2, 3, 4), False, 0),
    ]
    host = Host()
    host.run(plan(1, [X, X, there, there, there], steps))
    assert [type(e) for e in host.read(enter(1), enter(2, 1), send(3, 2))] == [p.Launch, p.Launch]
    assert [type(e) for e in host.hear(p.Finished(1))] == [p.ToController]
    opened = host.hear(p.Finished(2, BAD))[1]
    assert isinstance(opened, p.OpenSend)
    assert (opened.buffers, opened.blame is not None) == ((100, 101, 100), True)
    assert opened.causes == (("order", 2), ("done", 1), ("done", 2))
    one = sends_by_host((X,), (there,), 0, Cluster())
    assert opened.pieces == sends_by_host((X, X, X), (there, there, there), 0, Cluster())
    assert sum(nbytes for *_, nbytes in opened.pieces) == 3 * sum(nbytes for *_, nbytes in one)
    assert host.hear(p.Sent(3)) == [
        done(3, ("sent", 3), opened.blame),
        *(p.FreeBuffer(100 + at, (("done", 1 + at), ("sent", 3))) for at in (0, 1)),
    ]


DAMAGED = p.Blame("lost", "its file is damaged")
TOLD = p.Blame("lost", "its file is damaged", host=0)


def lost(buffer: int, transfer: int) -> p.ToController:
    return p.ToController(p.HostFault(0, -1, TOLD, buffer=buffer), (("unread", transfer),))


def test_an_array_that_cannot_be_read_is_named_once_and_its_send_goes_on_and_fails_at_its_end() -> None:
    there = layout(FAR)
    host = Host()
    host.put(50)
    host.put(51)
    both = plan(1, [X, X, there, there], [Move("out", (0, 1), (2, 3), False, 0)], args={0: 0, 1: 1})
    host.run(both, args=(50, 51))
    (opened,) = host.read(send(3))
    assert isinstance(opened, p.OpenSend)
    unread = p.SourceLost(p.Chunk(3, 0, 2, opened.pieces[-1][1], 0, 16), 1, DAMAGED)
    assert host.hear(unread) == [lost(51, 3)]
    assert host.hear(unread) == []
    again = p.ToController(lost(51, 3).report, (("seat", 1),))
    assert again in host.hear(seat(tree=1)), "what the path had lost"
    assert host.hear(p.Sent(3)) == [done(3, ("sent", 3), TOLD)]
    late = p.SourceLost(p.Chunk(3, 0, 2, 0, 0, 16), 0, DAMAGED)
    assert host.hear(late) == [], "a connection that was given up tried to read what had arrived by another"


def test_what_a_host_sends_to_itself_may_have_arrived_before_it_is_known_that_it_could_not_be_read() -> None:
    other = Layout((8,), "float32", NEAR, (4,), Sharding(((),)))  # each host has what it needs
    host = Host()
    host.put(50)
    host.run(plan(1, [X, other], [Move("over", (0,), (1,), False, 0)], args={0: 0}, keep=(1,)), args=(50,))
    host.read(send(3), recv(4, 3))
    host.hear(p.Sent(3))
    host.hear(p.Received(3))
    unread = p.SourceLost(p.Chunk(3, 0, 0, 0, 0, 16), 0, DAMAGED)
    assert host.hear(unread) == [lost(50, 3), lost(101, 3)]
    assert host.hear(unread) == []


def test_arrays_that_come_together_are_one_receive_and_share_its_blame() -> None:
    there = layout(FAR)
    steps: list[Gang | Move] = [Move("in", (0, 1), (2, 3), False, 0), gang("reader", NEAR, (3,), (4,))]
    host = Host()
    host.run(plan(1, [there, there, X, X, X], steps, keep=(2, 4)))
    first, second, opened, *_ = host.read(recv(2, 1), enter(3, 1))
    assert [first, second] == [p.MakeBuffer(buffer, X, None, (("order", 2),)) for buffer in (102, 103)]
    assert isinstance(opened, p.OpenRecv)
    assert opened.buffers == (102, 103)
    assert opened.pieces == receives_by_host((there, there), (X, X), 0, Cluster())
    said = host.hear(p.Received(1, BAD))
    assert [type(each) for each in said] == [p.ToController, p.Launch]
    assert isinstance(said[1], p.Launch)
    assert said[1].placeholders


def test_a_gang_that_is_not_on_this_host_does_not_hold_a_receive() -> None:
    host = Host()
    host.run(inbound())
    assert [type(e) for e in host.read(recv(5, 1, after=4))] == [p.MakeBuffer, p.OpenRecv]


def test_a_sparse_send_is_counted_first() -> None:
    host = Host()
    host.run(outbound(sparse=True))
    host.read(enter(1), send(2, 1))
    assert host.hear(p.Finished(1))[1] == p.CountRows(2, 100, layout(FAR), (("order", 2), ("done", 1)), X)
    pieces = ((2, 0, 40), (2, 1, 8))
    assert host.hear(p.RowsCounted(2, pieces)) == [
        p.ToController(p.PieceCounts(2, ME, ((2, 2),)), (("count", 2),)),
        p.OpenSend(2, (100,), pieces, None, (("count", 2),), (X,), (layout(FAR),)),
    ]


def test_a_spoilt_sparse_send_tells_every_host_that_might_have_got_rows() -> None:
    host = Host()
    host.run(outbound(sparse=True))
    host.read(enter(1), send(2, 1))
    opened = host.hear(p.Finished(1, BAD))[1]
    assert isinstance(opened, p.OpenSend)
    assert opened.blame is not None
    assert opened.pieces == ((2, 0, 0),)


def test_a_sparse_receive_is_told_what_to_expect() -> None:
    host = Host()
    host.run(inbound(sparse=True))
    assert host.read(recv(2, 1))[1] == p.OpenRecv(1, 2, (101,), (), True, (("order", 2),), (layout(FAR),), (X,))
    assert host.read(p.ExpectStep(1, ((0, 3), (1, 4)))) == [p.ExpectRecv(1, 3, (("order", 3),))]
    assert host.read(p.ExpectStep(1, ((1, 4),))) == [p.ExpectRecv(1, 0, (("order", 4),))]


def test_a_client_gets_each_shard_once_and_puts_each_shard_where_it_belongs() -> None:
    both = Layout((8,), "float32", NEAR, (2, 2), Sharding(((1,),)))  # each half on both hosts
    host = Host()
    opened = host.read(p.RecvStep(1, -1, 50, HOSTS, 1, -1, 7, 3, both))[1]
    assert isinstance(opened, p.OpenRecv)
    assert opened.pieces == ((-7, 0, 16), (-7, 1, 16))
    host.hear(p.Received(1))
    assert host.read(p.SendStep(2, -1, 50, HOSTS, 2, 7))[0] == p.OpenSend(
        2, (50,), ((-7, 0, 16), (-7, 1, 16)), None, (("order", 2), ("recv", 1)), (both,)
    )
    other = Executor(1, Cluster())
    other.handle(seat(host=1), 0)
    other.handle(p.Reformed(0), 0)
    other.handle(p.Ordered(0, 0, 0, 1, HOSTS, 0, (), (), (p.RecvStep(1, -1, 50, HOSTS, 1, -1, 7, 3, both),)), 0)
    other.handle(p.Received(1), 0)
    step = p.SendStep(2, -1, 50, HOSTS, 2, 7)
    assert other.handle(p.Ordered(0, 0, 0, 2, HOSTS, 0, (), (), (step,)), 0) == [
        p.ToController(p.Done(2, ((1, 2),)), (("order", 2),))
    ]


# --- code ------------------------------------------------------------------------------------------------


def test_code_is_compiled_where_its_gangs_run() -> None:
    host = Host()
    host.run(chain(1), args=(50,))
    assert host.read(p.CompileStep(1, (0, 9))) == [p.CompileCode(1, 0, (("order", 2),), about=True)]
    assert host.hear(p.CodeReady(1, 0)) == [p.ToController(p.Compiled(1, 0, ME), (code_cause(1, 0),))]
    elsewhere = plan(2, [layout(line(0, 2, 2))], [gang("g", line(0, 2, 2), (), (0,))])
    assert host.read(p.CompileStep(2, (0,)), plans=(elsewhere,)) == []


def test_a_forgotten_plan_is_forgotten_here_and_what_is_being_compiled_for_it_is_still_answered() -> None:
    host = Host()
    host.run(chain(1), args=(50,))
    host.read(p.CompileStep(1, (0,)))
    assert host.read(p.ForgetStep((1,), (1, 7))) == [p.ForgetPlan(1, (("order", 3),))]
    (said,) = host.hear(p.CodeReady(1, 0, p.Blame("code", "nobody wants it")))
    compiled = report(p.Compiled, said)
    assert compiled.blame is not None
    with pytest.raises(Illegal, match="nobody asked"):
        host.hear(p.CodeReady(1, 0))
    assert host.read(p.ForgetStep((), (1,))) == []

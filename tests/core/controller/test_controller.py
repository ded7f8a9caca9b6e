"""What the controller tells clients, and when. The hosts of these tests report only what the test lets them."""

from __future__ import annotations

from typing import Any

import pytest

from core import protocol as p
from tests.core.build import Build

from .rig import CLIENT, HOST, Rig


def crossing(rig: Rig) -> tuple[p.GangStep, p.SendStep, p.RecvStep, p.GangStep]:
    """Run 1 on hosts 0 and 1 makes what run 2 reads on host 2. Returns all that is ordered for the two."""
    maker, reader = Build("maker", s=2), Build("reader", t=1)
    made = maker.call("make", "s", [maker.arg("s", 4, split="0")])
    read = reader.call("read", "t", [reader.arg("t", 4)])
    rig.say(CLIENT, p.Open("client"))
    rig.say(CLIENT, p.Register(1, maker.program(made)))
    rig.say(CLIENT, p.Register(2, reader.program(read)))
    rig.say(CLIENT, p.Submit(1, 1, (bytes(16),), (11,)))
    rig.say(CLIENT, p.Submit(2, 2, (11,), (12,)))
    (sent,) = [step for step in rig.steps if isinstance(step, p.SendStep)]
    (received,) = [step for step in rig.steps if isinstance(step, p.RecvStep)]
    gangs = rig.gangs
    assert [gang.hosts for gang in gangs] == [((0, 2),), ((2, 3),)]
    return gangs[0], sent, received, gangs[1]


def test_a_result_is_not_reported_before_all_that_it_depends_on() -> None:
    """Everything that run 2 did is over, but a host of run 1 has not reported yet, and its news is bad."""
    rig = Rig(3)
    make, sent, received, read = crossing(rig)
    rig.done(0, make)
    rig.done(0, sent)
    rig.done(1, sent)
    rig.done(2, received)
    rig.done(2, read)
    assert rig.ended == {}, "a result was reported before what it depends on"
    rig.done(1, make, p.Blame("user", "nan", host=1))
    assert set(rig.ended) == {1, 2}
    assert all(blame is not None and (blame.cause, blame.node) == ("nan", "make") for blame in rig.ended.values())


@pytest.mark.parametrize("seen", ["peer", "discarded"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_hosts_view_of_anothers_failure_waits_for_the_other_hosts_own_report(seen: str, first: int) -> None:
    rig = Rig(3)
    make, *_ = crossing(rig)
    said = p.Blame(seen, "it broke off"), p.Blame("checkpoint", "the disk is full")
    rig.done(0, make, said[first])
    assert (1 in rig.ended) == (first == 1), "a host that reports only what it saw of another is not believed at once"
    rig.done(1, make, said[1 - first])
    assert rig.blame(1) == ("checkpoint", "the disk is full")


def test_when_the_last_report_is_good_all_dependent_results_are_reported() -> None:
    rig = Rig(3)
    make, sent, received, read = crossing(rig)
    for host, step in ((0, make), (0, sent), (1, sent), (2, received), (2, read)):
        rig.done(host, step)
    rig.done(1, make)
    assert rig.ended == {1: None, 2: None}


def test_releasing_an_unbound_slice_changes_nothing_and_the_session_goes_on() -> None:
    """Its client may have bound it with a controller that has been restarted since."""
    rig = Rig(3)
    rig.say(CLIENT, p.Open("client"))
    rig.say(CLIENT, p.ReleaseSlice("s"))
    opened = list(rig.controller.state.sessions)
    build = Build("program", s=2)
    rig.say(CLIENT, p.Register(1, build.program(build.call("make", "s", [build.arg("s", 4, split="0")]))))
    rig.say(CLIENT, p.Calls((p.ReleaseSlice("s"), p.ReleaseSlice("s"), p.Submit(1, 1, (bytes(16),), (11,)))))
    (gang,) = rig.gangs
    for host in (0, 1):
        rig.done(host, gang)
    assert rig.ended == {1: None}
    assert list(rig.controller.state.sessions) == opened


def test_a_report_that_comes_twice_counts_once() -> None:
    rig = Rig(3)
    make, *_ = crossing(rig)
    rig.done(0, make)
    rig.done(0, make)
    assert 1 not in rig.ended
    rig.done(1, make)
    rig.done(1, make)
    assert rig.ended == {1: None}


def test_steps_enter_one_global_sequence_each_after_its_dependencies() -> None:
    rig = Rig(3)
    make, sent, received, read = crossing(rig)
    assert make.seq < sent.seq < received.seq < read.seq
    assert sent.transfer == received.transfer


def names_of_one_buffer() -> tuple[Rig, int]:
    """Run 1 returns its output twice, as 11 and 12. Run 2 reads it as 12, and the client has released that. Hosts still
    compile; returned is the plan of run 1."""
    rig = Rig(1)
    rig.compiling = True
    maker, reader = Build("maker", s=1), Build("reader", s=1)
    made = maker.call("make", "s", [maker.arg("s", 4)])
    read = reader.call("read", "s", [reader.arg("s", 4)])
    rig.say(CLIENT, p.Open("client"))
    rig.say(CLIENT, p.Calls((p.Register(1, maker.program(made, made)), p.Register(2, reader.program(read)))))
    rig.say(CLIENT, p.Calls((p.Submit(1, 1, (bytes(16),), (11, 12)), p.Submit(2, 2, (12,), (13,)), p.Release((12,)))))
    plans = list(dict.fromkeys(plan for _, plan, _ in rig.owed))
    assert len(plans) == 2
    rig.compiled(plans[1])
    return rig, plans[0]


def test_a_run_that_reads_a_released_second_name_fails_with_the_maker() -> None:
    rig, plan = names_of_one_buffer()
    rig.compiled(plan, p.Blame("user", "no such operation"))
    assert {run: blame and blame.cause for run, blame in rig.ended.items()} == dict.fromkeys(
        (1, 2), "no such operation"
    )
    assert not rig.gangs
    controller = rig.controller
    assert not list(controller.buffers)
    assert all(kept == counted for _, kept, counted in controller.audit())


def test_a_run_that_reads_a_released_second_name_reads_the_output() -> None:
    rig, plan = names_of_one_buffer()
    rig.compiled(plan)
    for step in rig.gangs:
        rig.done(0, step)
    assert rig.ended == {1: None, 2: None}


def calls_ahead(count: int) -> Rig:
    """Submit so many runs of a program of one gang, one by one."""
    rig = Rig(1)
    build = Build("step", s=1)
    rig.say(CLIENT, p.Open("client"))
    rig.say(CLIENT, p.Register(1, build.program(build.call("step", "s", [build.arg("s", 4)]))))
    for run in range(1, count + 1):
        rig.say(CLIENT, p.Submit(run, 1, (bytes(16),), (run,)))
    return rig


def test_hosts_learn_of_a_run_with_its_first_step_and_not_before() -> None:
    """A message for each call that is made ahead would be written to every root of the tree, for nothing yet."""
    rig = calls_ahead(30)
    window = rig.controller.config.window
    named = [header.run for message in rig.heard for header in message.runs]
    assert named == [step.run for step in rig.gangs]
    assert len(named) == window
    assert len(rig.heard) <= window + 1, "one message was for the code"
    rig.done(0, rig.gangs[0])
    assert [header.run for header in rig.heard[-1].runs] == [window + 1]


def test_hosts_never_learn_of_a_run_that_was_cancelled_before_its_first_step() -> None:
    rig = calls_ahead(12)
    last = rig.heard[-1].number
    for run in range(9, 13):
        rig.say(CLIENT, p.Cancel(run))
    assert {run for run, blame in rig.ended.items() if blame and blame.code == "cancelled"} == {9, 10, 11, 12}
    for message in rig.heard:
        if message.number > last:  # only what is to be freed, of what came with the call
            assert len(message.runs) <= len([step for step in message.steps if isinstance(step, p.FreeStep)])
    controller = rig.controller
    for step in rig.gangs:
        rig.done(0, step)
    rig.say(CLIENT, p.Release(tuple(range(1, 9))))
    assert not list(controller.buffers)
    assert all(kept == counted for _, kept, counted in controller.audit())


def freed(messages: list[p.Ordered]) -> list[list[str]]:
    return [[type(step).__name__ for step in message.steps] for message in messages]


def test_what_only_frees_memory_rides_with_the_next_order_while_something_is_under_way() -> None:
    rig = calls_ahead(2)
    first, second = rig.gangs
    rig.done(0, first)
    before = len(rig.heard)
    rig.say(CLIENT, p.Release((1,)))
    assert freed(rig.heard[before:]) == [], "the second gang is under way"
    rig.say(CLIENT, p.Submit(3, 1, (bytes(16),), (3,)))
    (order,) = rig.heard[before:]
    kinds = [type(step) for step in order.steps]
    assert set(kinds) == {p.FreeStep, p.GangStep}
    assert kinds.index(p.FreeStep) < kinds.index(p.GangStep), "the gang may take the memory"
    assert second.run == 2


def test_what_only_frees_memory_leaves_at_once_when_nothing_is_under_way_or_when_all_of_it_has_ended() -> None:
    rig = calls_ahead(2)
    first, second = rig.gangs
    rig.done(0, first)
    before = len(rig.heard)
    rig.say(CLIENT, p.Release((1,)))
    rig.done(0, second)
    assert {kind for kinds in freed(rig.heard[before:]) for kind in kinds} == {"FreeStep"}
    before = len(rig.heard)
    rig.say(CLIENT, p.Release((2,)))
    assert freed(rig.heard[before:]) == [["FreeStep"]]


def test_what_waits_to_be_freed_leaves_before_hosts_come_or_go() -> None:
    rig = calls_ahead(2)
    rig.done(0, rig.gangs[0])
    before = len(rig.heard)
    rig.say(CLIENT, p.Release((1,)))
    assert len(rig.heard) == before
    rig.say(2, p.Open("another client"))
    assert freed(rig.heard[before:]) == [["FreeStep", "FreeStep"]] or freed(rig.heard[before:]) == [["FreeStep"]]


class SlowSeats(Rig):
    """Host 1 takes its seat when it is told to, by `sit`."""

    slow = False
    waiting: tuple[p.Event, ...] = ()

    def hear(self, peer: int, message: Any) -> list[p.Event]:
        found = super().hear(peer, message)
        if self.slow and peer == HOST + 1 and isinstance(message, p.Seat):
            self.waiting = tuple(found)
            return []
        return found

    def sit(self) -> None:
        for event in self.waiting:
            assert isinstance(event, p.MessageReceived)
            self.say(event.peer, event.message)


def test_a_run_whose_code_is_ready_while_hosts_take_new_seats_starts_when_they_have_them() -> None:
    """Nothing else may come afterwards that makes the controller look at the runs that wait for memory."""
    rig = SlowSeats(2)
    rig.compiling = True
    maker = Build("maker", s=1)
    rig.say(CLIENT, p.Open("client"))
    rig.say(CLIENT, p.Register(1, maker.program(maker.call("make", "s", [maker.arg("s", 4)]))))
    rig.say(CLIENT, p.Submit(1, 1, (bytes(16),), (11,)))
    assert rig.seat is not None
    rig.slow = True
    rig.say(HOST, p.Join(0, 0, rig.seat.epoch, rig.heard[-1].number))  # its connection was lost for a moment
    for plan in {plan for _, plan, _ in rig.owed}:
        rig.compiled(plan)
    assert not rig.gangs
    rig.sit()
    (gang,) = rig.gangs
    rig.done(0, gang)
    assert rig.ended == {1: None}

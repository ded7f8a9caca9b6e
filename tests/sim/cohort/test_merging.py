"""Executors that stand for several hosts are divided, compared and merged."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from core import protocol as p
from core.host import HostState
from core.model import spans
from core.model.errors import Illegal
from core.model.spans import Spans
from sim.cohort import AlikeHosts, shared_executor
from sim.cohort.alike import PlaceFacts
from tests.core.hostworld import SAME, SPLIT, Cluster, gang, layout, plan

from .alike_hosts import ALL, BAD, SOME, WHOLE, nothing_is_past, ordered, plan_and_run, same, seat, seated


def test_both_halves_go_on_with_what_was_under_way() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    other = executor.split(((2, 5),))
    assert (executor.members, executor.host) == (((0, 2), (5, 6)), 0)
    assert (other.members, other.host) == (((2, 5),), 2)
    assert other.handle(p.Finished(1), 0) == [p.ToController(p.Done(1, ((2, 5),)), (("done", 1),))]
    with pytest.raises(Illegal, match="cannot finish"):
        other.handle(p.Finished(1), 0)
    assert executor.handle(p.Finished(1, BAD.__class__("user", "x", host=0)), 0) != []


@pytest.mark.parametrize("part", [(), ALL, ((0, 7),), ((5, 7),)])
def test_a_part_is_some_of_the_hosts_and_not_all(part: Spans) -> None:
    with pytest.raises(Illegal, match="name some and not all"):
        seated().split(part)


def test_cohorts_that_were_split_can_join_when_they_are_in_the_same_state() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    other = executor.split(((0, 2),))
    assert (executor.host, other.host) == (2, 0)
    assert same(executor, other)  # the gang runs on all of them
    executor.handle(p.Finished(1), 0)
    assert not same(executor, other)
    other.handle(p.Finished(1), 0)
    assert same(executor, other)
    executor.absorb([other])
    with pytest.raises(Illegal, match="hosts of their own"):
        executor.absorb([other])
    assert (executor.members, executor.host) == (ALL, 0)
    again = executor.handle(seat(0, tree=1), 0)
    assert p.ToController(p.Done(1, ALL), (("seat", 1),)) in again
    assert p.ToController(p.Seated(0, 0, 1, 1), (("seat", 1),)) in again


@pytest.mark.parametrize("change", ["last", "settled", "blame", "buffer", "code", "epoch"])
def test_cohorts_with_any_difference_that_matters_cannot_join(change: str) -> None:
    executor = seated()
    made = plan_and_run(WHOLE)
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **made), 0)
    other = executor.split(((3, 6),))
    executor.handle(p.Finished(1), 0)
    other.handle(p.Finished(1, p.Blame("user", "x", host=9) if change == "blame" else None), 0)
    assert same(executor, other) == (change != "blame")
    match change:
        case "last":
            other.handle(ordered(2), 0)
        case "settled":
            other.handle(ordered(2, settled=2), 0)
            executor.handle(ordered(2), 0)
        case "buffer":
            other.handle(ordered(2, p.RecvStep(2, -1, 5, ((0, 3),), 2)), 0)
            executor.handle(ordered(2), 0)
            assert same(executor, other)
            executor.handle(ordered(3, runs=(p.RunHeader(2, 1, 200, ()),)), 0)
            other.handle(ordered(3), 0)
        case "epoch":
            assert [type(e) for e in other.handle(p.Seat(0, 1, 1, 3, -1, (), ALL, 0), 0)] == [p.Reform]
            other.handle(p.Reformed(1), 0)
        case "code":
            for each in (executor, other):
                each.handle(ordered(2, p.CompileStep(1, (0,))), 0)
            executor.handle(p.CodeReady(1, 0), 0)
            assert not same(executor, other)
            other.handle(p.CodeReady(1, 0, p.Blame("user", "x", host=9)), 0)
        case _:
            assert change == "blame"
    assert not same(executor, other)


def test_cohorts_that_know_a_plan_in_which_they_differ_cannot_join() -> None:
    first, second = seated(((0, 1),)), seated(((1, 2),))
    for executor in (first, second):
        executor.handle(ordered(1, **plan_and_run(SOME)), 0)  # of host 1 and 2
        executor.handle(ordered(2, p.ForgetStep((1,))), 0)
    assert not same(first, second)
    for executor in (first, second):
        executor.handle(ordered(3, p.ForgetStep((), (1,))), 0)
    assert same(first, second)


def test_many_cohorts_join_at_once_while_a_gang_runs() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    others = [executor.split(spans.one(host)) for host in range(1, 6)]
    assert len({each.remembered(nothing_is_past) for each in (executor, *others)}) == 1
    executor.absorb(others)
    assert executor.handle(p.Finished(1), 0) == [p.ToController(p.Done(1, ALL), (("done", 1),))]


def test_what_is_past_and_what_was_for_others_decides_nothing() -> None:
    """One of two hosts copied a buffer and was told so by messages that the other never had."""
    executor = seated()
    made = plan_and_run(WHOLE)
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **made), 0)
    executor.handle(p.Finished(1), 0)
    other = executor.split(spans.one(5))
    for step, end in ((p.SpillStep(2, 100, spans.one(5)), 2), (p.RestoreStep(3, 100, spans.one(5)), 3)):
        other.handle(ordered(end, step, hosts=spans.one(5), settled=end), 0)
        other.handle(p.Copied(end), 0)
    assert not same(executor, other)
    for each in (executor, other):
        each.passed_on(3, settled=4)
    assert same(executor, other)
    assert executor.remembered(lambda cause: True) == other.remembered(lambda cause: True)


def test_hosts_that_will_be_told_something_one_by_one_are_not_compared() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    assert executor.outline() is not None
    executor.handle(ordered(2, p.CompileStep(1, (0,))), 0)
    assert executor.outline() is None
    executor.handle(p.CodeReady(1, 0), 0)
    assert executor.outline() is not None
    executor.handle(ordered(3, p.SpillStep(2, 100, ALL)), 0)
    assert executor.outline() is None


# --- gets that one of the hosts sends -----------------------------------------------------------------------


FIRST = ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE))
FIRST_OF_SHARDS = ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE, sharding=SPLIT))
GET = ordered(2, p.SendStep(2, -1, 100, spans.one(0), 7, 9), hosts=spans.one(0))


def told(*messages: Any, first: p.Ordered = FIRST) -> AlikeHosts:
    """Six hosts whose contents go together, and of which one may send what is got."""
    facts = PlaceFacts(Cluster(), lambda transfer: True, one_may_send=True)
    executor = AlikeHosts(ALL, Cluster(), facts=facts)
    for event in (seat(0), p.Reformed(0), first, *messages):
        executor.handle(event, 0)
    return executor


def test_a_get_that_the_first_host_sends_does_not_divide_it_from_the_others() -> None:
    executor = told()
    assert executor.divides(GET) == ()
    assert executor.handle(GET, 0) == []
    assert executor.sender_of(7) == spans.one(0)
    assert p.OpenSend in map(type, executor.handle(p.Finished(1), 0))
    assert p.ToController in map(type, executor.handle(p.Sent(7), 0))
    assert executor.sender_of(7) is None


@pytest.mark.parametrize(
    "message",
    [
        ordered(2, p.SendStep(2, -1, 100, spans.one(3), 7, 9), hosts=spans.one(3)),
        ordered(2, p.SendStep(2, 1, 1, spans.one(0), 7), hosts=ALL),
        ordered(2, p.PoisonStep(7, BAD), hosts=spans.one(0)),
    ],
)
def test_other_steps_of_one_host_do(message: p.Ordered) -> None:
    assert len(told().divides(message)) == 2


@pytest.mark.parametrize("gone", [((0, 1),), ((2, 6),)])
def test_a_shard_that_one_host_sends_does_not_divide_it_from_the_others(gone: Spans) -> None:
    """Two of a buffer's twelve shards are got, of which hosts 3 and 4 have one each, and the sender of one stays."""
    gets = [p.SendStep(2, -1, 100, spans.one(3), 7, 9, shard=6), p.SendStep(3, -1, 100, spans.one(4), 8, 9, shard=9)]
    executor = told(first=FIRST_OF_SHARDS)
    both = ordered(2, *gets, hosts=((3, 5),))
    assert executor.divides(both) == ()
    executor.handle(both, 0)
    assert [executor.sender_of(transfer) for transfer in (7, 8)] == [spans.one(3), spans.one(4)]
    rest = executor.split(gone)
    for each in (executor, rest):
        each.drop_others_sends()
    sends = [
        [effect for effect in each.handle(p.Finished(1), 0) if isinstance(effect, p.OpenSend)]
        for each in (executor, rest)
    ]
    has = [spans.within(((3, 5),), each.members) for each in (executor, rest)]
    assert [[send.pieces for send in each] for each in sends] == [
        [((-9, 6, 8),), ((-9, 9, 8),)] if mine else [] for mine in has
    ]


def test_a_copy_of_a_buffer_that_one_host_sends_divides_them() -> None:
    executor = told(GET)
    assert executor.divides(ordered(3, p.SpillStep(3, 100, ALL))) == (((0, 1),), ((1, 6),))


@pytest.mark.parametrize("opened", [False, True])
def test_hosts_that_are_split_from_the_sender_forget_the_get(opened: bool) -> None:
    made, free = [p.Finished(1)] if opened else [], ordered(3, p.FreeStep((100,)))
    executor, other = told(GET, *made), told(*made)
    other.passed_on(2, 0)
    rest = executor.split(((1, 6),))
    assert executor.drop_others_sends() == 0
    assert rest.drop_others_sends() == opened
    twin = other.split(((1, 6),))
    assert rest.remembered(nothing_is_past) == twin.remembered(nothing_is_past)
    assert executor.remembered(nothing_is_past) != other.remembered(nothing_is_past)
    assert rest.handle(free, 0) == twin.handle(free, 0)
    if not opened:
        assert rest.handle(p.Finished(1), 0) == twin.handle(p.Finished(1), 0)
        executor.handle(p.Finished(1), 0)
    assert p.ToController in map(type, executor.handle(p.Sent(7), 0))


# --- executors that know different programs -----------------------------------------------------------------


def second(*, program: int = 2, run: int = 2, seq: int = 2) -> dict[str, Any]:
    made = plan(program, [layout(WHOLE, 24, SAME)], [gang("h", WHOLE, (), (0,))], keep=(0,))
    return {"plans": (made,), "runs": (p.RunHeader(run, program, 200, ()),)}


@pytest.mark.parametrize("ended", [(), (1,), (2,), (1, 2)])
def test_one_that_takes_in_what_another_knows_knows_what_one_for_both_would(ended: tuple[int, ...]) -> None:
    one, both = seated(), seated()
    blank = one.blank(ALL)
    first = ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE))
    other = ordered(2, p.GangStep(2, 2, 0, ALL), p.FreeStep((200,)), **second())
    for executor, message in ((one, first), (blank, other), (both, first), (both, other)):
        executor.handle(message, 0)
    for seq in ended:
        (one if seq == 1 else blank).handle(p.Finished(seq), 0)
        both.handle(p.Finished(seq), 0)
    one.passed_on(2, 0)
    one.take_in(blank)
    assert one.remembered(nothing_is_past) == both.remembered(nothing_is_past)
    for seq in (1, 2):
        if seq not in ended:
            assert one.handle(p.Finished(seq), 0) == both.handle(p.Finished(seq), 0)


def test_what_one_takes_in_is_of_all_its_hosts() -> None:
    executor = seated()
    with pytest.raises(Illegal, match="0-5 know nothing of 1-2"):
        executor.take_in(executor.blank(((1, 3),)))


def test_one_that_knows_nothing_has_the_same_seat() -> None:
    executor = seated()
    executor.handle(ordered(1, p.GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    blank = executor.blank(((2, 4),))
    assert blank.idle
    assert not executor.idle
    assert blank.members == ((2, 4),)
    assert blank.handle(ordered(2, p.GangStep(2, 2, 0, ALL), **second()), 0) != []
    assert blank.knows() == ([200], [2])


def test_cohorts_are_looked_at_buffer_by_buffer_only_if_their_outlines_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attempts to join are frequent, and a program may hold thousands of buffers."""
    looked_at: list[HostState] = []
    remembered = shared_executor.remembered

    def noted(state: HostState, past: shared_executor.Past) -> Hashable:
        looked_at.append(state)
        return remembered(state, past)

    monkeypatch.setattr(shared_executor, "remembered", noted)
    first, second = seated(((0, 1),)), seated(((1, 2),))
    first.handle(ordered(1, **plan_and_run(WHOLE)), 0)
    second.handle(ordered(1), 0)
    assert not same(first, second)
    assert not looked_at

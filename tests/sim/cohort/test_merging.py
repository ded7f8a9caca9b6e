"""Executors that stand for several hosts are divided, compared and merged."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from core.host import standing
from core.host.host_state import HostState
from core.model import spans
from core.model.errors import Illegal
from core.model.spans import Spans
from core.protocol.effects import CodeReady, Copied, Finished, Reform, Reformed, ToController
from core.protocol.messages import (
    Blame,
    CompileStep,
    Done,
    ForgetStep,
    GangStep,
    RecvStep,
    RestoreStep,
    RunHeader,
    Seat,
    Seated,
    SpillStep,
)

from .alike_hosts import ALL, BAD, SOME, WHOLE, nothing_is_past, ordered, plan_and_run, same, seat, seated


def test_both_halves_go_on_with_what_was_under_way() -> None:
    executor = seated()
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    other = executor.split(((2, 5),))
    assert (executor.members, executor.host) == (((0, 2), (5, 6)), 0)
    assert (other.members, other.host) == (((2, 5),), 2)
    assert other.handle(Finished(1), 0) == [ToController(Done(1, ((2, 5),)), (("done", 1),))]
    with pytest.raises(Illegal, match="1 finished"):
        other.handle(Finished(1), 0)
    assert executor.handle(Finished(1, BAD.__class__("user", "x", host=0)), 0) != []


@pytest.mark.parametrize("part", [(), ALL, ((0, 7),), ((5, 7),)])
def test_a_part_is_some_of_the_hosts_and_not_all(part: Spans) -> None:
    with pytest.raises(Illegal, match="name some and not all"):
        seated().split(part)


def test_cohorts_that_were_split_can_join_when_they_are_in_the_same_state() -> None:
    executor = seated()
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    other = executor.split(((0, 2),))
    assert (executor.host, other.host) == (2, 0)
    assert same(executor, other)  # the gang runs on all of them
    executor.handle(Finished(1), 0)
    assert not same(executor, other)
    other.handle(Finished(1), 0)
    assert same(executor, other)
    executor.absorb([other])
    with pytest.raises(Illegal, match="hosts of their own"):
        executor.absorb([other])
    assert (executor.members, executor.host) == (ALL, 0)
    again = executor.handle(seat(0, tree=1), 0)
    assert ToController(Done(1, ALL), (("seat", 1),)) in again
    assert ToController(Seated(0, 0, 1, 1), (("seat", 1),)) in again


@pytest.mark.parametrize("change", ["last", "settled", "blame", "buffer", "code", "epoch"])
def test_cohorts_with_any_difference_that_matters_cannot_join(change: str) -> None:
    executor = seated()
    made = plan_and_run(WHOLE)
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **made), 0)
    other = executor.split(((3, 6),))
    executor.handle(Finished(1), 0)
    other.handle(Finished(1, Blame("user", "x", host=9) if change == "blame" else None), 0)
    assert same(executor, other) == (change != "blame")
    match change:
        case "last":
            other.handle(ordered(2), 0)
        case "settled":
            other.handle(ordered(2, settled=2), 0)
            executor.handle(ordered(2), 0)
        case "buffer":
            other.handle(ordered(2, RecvStep(2, -1, 5, ((0, 3),), 2)), 0)
            executor.handle(ordered(2), 0)
            assert same(executor, other)
            executor.handle(ordered(3, runs=(RunHeader(2, 1, 200, ()),)), 0)
            other.handle(ordered(3), 0)
        case "epoch":
            assert [type(e) for e in other.handle(Seat(0, 1, 1, 3, -1, (), ALL, 0), 0)] == [Reform]
            other.handle(Reformed(1), 0)
        case "code":
            for each in (executor, other):
                each.handle(ordered(2, CompileStep(1, (0,))), 0)
            executor.handle(CodeReady(1, 0), 0)
            assert not same(executor, other)
            other.handle(CodeReady(1, 0, Blame("user", "x", host=9)), 0)
        case _:
            assert change == "blame"
    assert not same(executor, other)


def test_cohorts_that_know_a_plan_in_which_they_differ_cannot_join() -> None:
    first, second = seated(((0, 1),)), seated(((1, 2),))
    for executor in (first, second):
        executor.handle(ordered(1, **plan_and_run(SOME)), 0)  # of host 1 and 2
        executor.handle(ordered(2, ForgetStep((1,))), 0)
    assert not same(first, second)
    for executor in (first, second):
        executor.handle(ordered(3, ForgetStep((), (1,))), 0)
    assert same(first, second)


def test_many_cohorts_join_at_once_while_a_gang_runs() -> None:
    executor = seated()
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    others = [executor.split(spans.one(host)) for host in range(1, 6)]
    assert len({each.remembered(nothing_is_past) for each in (executor, *others)}) == 1
    executor.absorb(others)
    assert executor.handle(Finished(1), 0) == [ToController(Done(1, ALL), (("done", 1),))]


def test_what_is_past_and_what_was_for_others_decides_nothing() -> None:
    """One of two hosts copied a buffer and was told so by messages that the other never had."""
    executor = seated()
    made = plan_and_run(WHOLE)
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **made), 0)
    executor.handle(Finished(1), 0)
    other = executor.split(spans.one(5))
    for step, end in ((SpillStep(2, 100, spans.one(5)), 2), (RestoreStep(3, 100, spans.one(5)), 3)):
        other.handle(ordered(end, step, hosts=spans.one(5), settled=end), 0)
        other.handle(Copied(end), 0)
    assert not same(executor, other)
    for each in (executor, other):
        each.passed_on(3, settled=4)
    assert same(executor, other)
    assert executor.remembered(lambda cause: True) == other.remembered(lambda cause: True)


def test_hosts_that_will_be_told_something_one_by_one_are_not_compared() -> None:
    executor = seated()
    executor.handle(ordered(1, GangStep(1, 1, 0, ALL), **plan_and_run(WHOLE)), 0)
    assert executor.outline() is not None
    executor.handle(ordered(2, CompileStep(1, (0,))), 0)
    assert executor.outline() is None
    executor.handle(CodeReady(1, 0), 0)
    assert executor.outline() is not None
    executor.handle(ordered(3, SpillStep(2, 100, ALL)), 0)
    assert executor.outline() is None


def test_cohorts_are_looked_at_buffer_by_buffer_only_if_their_outlines_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attempts to join are frequent, and a program may hold thousands of buffers."""
    looked_at: list[HostState] = []
    remembered = standing.remembered

    def noted(state: HostState, past: standing.Past) -> Hashable:
        looked_at.append(state)
        return remembered(state, past)

    monkeypatch.setattr(standing, "remembered", noted)
    first, second = seated(((0, 1),)), seated(((1, 2),))
    first.handle(ordered(1, **plan_and_run(WHOLE)), 0)
    second.handle(ordered(1), 0)
    assert not same(first, second)
    assert not looked_at

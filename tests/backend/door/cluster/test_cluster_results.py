"""Many results of one run are one for a session on a cluster, until one of them is used alone."""

from __future__ import annotations

from typing import Any

import pytest

from backend.door.cluster.cluster_arrays import ClusterArrays
from backend.door.protocol.ifrt_messages import StatusCode
from core.client import Limits
from core.model import Range, ranges
from core.protocol import Blame
from core.protocol import messages as m

from ..cluster_rig import HOST_LOST, ClusterRig

SHAPES = [(128, 64)] * 10


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig()


def step_of(rig: ClusterRig, **more: Any) -> Any:
    return rig.executable(SHAPES, SHAPES, **more)


def first_of(rig: ClusterRig) -> ClusterArrays:
    """Ten results of a run; the calls until then are forgotten."""
    made: Any = rig.run(rig.executable([(128, 64)], SHAPES), rig.large())
    rig.calls()
    assert isinstance(made, ClusterArrays)
    return made


def released(rig: ClusterRig) -> list[int]:
    calls = rig.calls() + rig.later()
    return ranges.each([each for call in calls if isinstance(call, m.Release) for each in call.buffers])


def submits(rig: ClusterRig) -> list[Any]:
    return [call for call in rig.calls() if isinstance(call, m.Submit)]


def test_a_step_names_the_results_of_the_last_one_as_one(rig: ClusterRig) -> None:
    made, step = first_of(rig), step_of(rig)
    again: Any = rig.run(step, made)
    (submit,) = submits(rig)
    assert submit.args == (Range(2, 10),)
    assert submit.results == (Range(12, 10),)
    assert again.count == 10


def test_one_that_is_used_alone_has_its_own_name(rig: ClusterRig) -> None:
    made, step = first_of(rig), rig.executable()
    rest = made.part(4)
    last = rest.part(1)
    alone = rest.alone()
    _kept = rig.run(step, alone)
    (submit,) = submits(rig)
    assert submit.args == (6,)
    _all = rig.run(step_of(rig), made, alone, last)
    (submit,) = submits(rig)
    assert submit.args == (Range(2, 4), 6, Range(7, 5))


def test_each_part_is_dropped_when_nobody_has_it(rig: ClusterRig) -> None:
    made = first_of(rig)
    rest = made.part(4)
    alone = rest.part(5).alone()
    del made
    assert released(rig) == [1, 2, 3, 4, 5]  # 1: the argument of the run
    del rest
    assert released(rig) == [6, 7, 8, 9, 10]
    del alone
    assert released(rig) == [11]


def test_donated_results_are_gone_and_not_released(rig: ClusterRig) -> None:
    made, step = first_of(rig), step_of(rig, donated=range(10))
    waits = made.waits()
    kept: Any = rig.run(step, made)
    assert submits(rig)[0].args == (Range(2, 10),)
    late = made.part(9).alone()
    assert rig.devices.is_deleted(late)
    assert rig.told(*waits) == [None]
    again: Any = rig.run(step, made, late)
    fault = rig.told(*again.waits())[0]
    assert (fault.code, "deleted or donated" in fault.text) == (StatusCode.INVALID_ARGUMENT, True)
    del made, late
    assert released(rig) == []
    assert kept.count == 10


def test_donated_results_that_are_given_twice_are_not_taken(rig: ClusterRig) -> None:
    made, step = first_of(rig), rig.executable(SHAPES * 2, SHAPES, donated=range(10))
    _kept = rig.run(step, made, made)
    assert submits(rig)[0].program == step.keeping != step.giving
    assert not rig.devices.is_deleted(made.part(9).alone())


def test_they_are_ready_when_it_is_said_however_they_were_taken_apart(rig: ClusterRig) -> None:
    made = first_of(rig)
    told = rig.told(*made.waits())
    alone = made.part(9).alone()
    rig.link.say(m.ContentsReady((Range(2, 4),)))
    rig.link.say(m.ContentsReady((Range(6, 5),)))
    assert told == []
    rig.link.say(m.ContentsReady((11,)))
    assert told == [None]
    assert rig.told(alone) == [None]


def test_a_failed_run_spoils_all_of_them(rig: ClusterRig) -> None:
    made = first_of(rig)
    alone = made.part(9).alone()
    rig.link.say(m.Ended(1, Blame("user", "it went wrong", "step")))
    for refs in (made.waits(), [alone]):
        assert "it went wrong" in rig.told(*refs)[0].text
    again: Any = rig.run(step_of(rig), made, alone)
    assert submits(rig) == []
    assert "it went wrong" in rig.told(*again.waits())[0].text
    assert "it went wrong" in rig.told(again.part(9).alone())[0].text


def test_one_of_them_may_be_lost(rig: ClusterRig) -> None:
    made = first_of(rig)
    rig.link.say(m.Ended(1))
    rig.link.say(m.ContentsReady((5,), HOST_LOST))
    assert rig.told(*made.waits())[0].code == StatusCode.DATA_LOSS
    rest = made.part(4)
    assert rig.told(*rest.waits()) == [None]
    assert rig.told(made.part(3).alone())[0].code == StatusCode.DATA_LOSS
    assert rig.told(*made.waits()) == [None]


def test_deleting_them_frees_them_at_once(rig: ClusterRig) -> None:
    made = first_of(rig)
    rest = made.part(6)
    rig.devices.delete(made)
    assert released(rig) == list(range(1, 8))
    del made
    assert released(rig) == []
    assert not rig.devices.is_deleted(rest.part(3).alone())


# --- calls that wait ------------------------------------------------------------------------------------------


def waiting(rig: ClusterRig) -> tuple[Any, Any, Any]:
    """Ten results; a call that reads them, which waits for room; its results."""
    made: Any = rig.run(rig.executable([(128, 64)], SHAPES), rig.large())
    step = step_of(rig)
    return made, step, rig.run(step, made)


def test_what_a_waiting_call_reads_is_released_behind_it() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    made, _, _again = waiting(rig)
    rest = made.part(4)
    del made, rest
    assert released(rig) == [1]
    rig.link.say(m.Ended(1))
    calls = rig.calls() + rig.later()
    (at,) = [at for at, call in enumerate(calls) if isinstance(call, m.Submit)]
    assert calls[at].args == (Range(2, 10),)
    (late,) = [call for call in calls[at:] if isinstance(call, m.Release)]
    assert late.buffers == (Range(2, 10),)


def test_results_of_a_waiting_call_are_used_before_they_have_names() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    _made, step, again = waiting(rig)
    alone = again.part(9).alone()
    dropped = again.part(8)
    _last = rig.run(step, again, alone, rig.large())
    del dropped
    told = rig.told(alone)
    rig.calls()
    rig.link.say(m.Ended(1))
    (second,) = submits(rig)
    first = second.results[0].first
    rig.link.say(m.Ended(2))
    assert told == [None]
    calls = rig.calls() + rig.later()
    (third,) = [call for call in calls if isinstance(call, m.Submit)]
    assert third.args[:2] == (Range(first, 8), first + 9)
    freed = [each for call in calls if isinstance(call, m.Release) for each in call.buffers]
    assert first + 8 in ranges.each(freed)


def test_a_waiting_call_that_never_is_made_spoils_its_results() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    _made, step, again = waiting(rig)
    alone = again.part(9).alone()
    last: Any = rig.run(step, again, alone)
    rig.link.say(m.Ended(1, Blame("user", "it went wrong", "step")))
    for refs in (again.waits(), [alone], last.waits()):
        assert "it went wrong" in rig.told(*refs)[0].text


def test_a_waiting_call_takes_over_what_is_taken_apart_meanwhile() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    made: Any = rig.run(rig.executable([(128, 64)], SHAPES), rig.large())
    _again = rig.run(step_of(rig, donated=range(10)), made)
    alone = made.part(9).alone()
    late: Any = rig.run(rig.executable(), alone)
    assert not rig.devices.is_deleted(alone)
    rig.calls()
    rig.link.say(m.Ended(1))
    assert [call.args for call in submits(rig)] == [(Range(2, 10),)]
    assert rig.devices.is_deleted(alone)
    assert "deleted or donated" in rig.told(*late)[0].text
    del made, alone
    assert released(rig) == []

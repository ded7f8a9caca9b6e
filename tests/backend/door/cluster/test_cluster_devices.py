"""A JAX session as a client of core: what it calls, in which order, and what it makes of what it hears."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.door.cluster import cluster_answers
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayCopy, ArrayType, StatusError
from core.client import Limits
from core.model import Range, ranges
from core.protocol import Blame
from core.protocol import messages as m

from ..cluster_rig import F32, HOST_LOST, ROWS, ClusterRig, Told


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig()


# --- contents -------------------------------------------------------------------------------------------------


def test_small_arrays_stay_here_and_travel_in_calls(rig: ClusterRig) -> None:
    step = rig.executable([(2,)], [(2,)])
    x = rig.put([1, 2])
    assert rig.calls() == []
    assert rig.fetched(x)[0].tolist() == [1, 2]
    rig.run(step, x)
    (call,) = rig.calls()
    assert call.args == (np.array([1, 2], np.float32).tobytes(),)


def test_large_arrays_are_put_on_the_slice_of_their_devices(rig: ClusterRig) -> None:
    rig.large(devices=(0, 1, 2, 3), tiles=ROWS)
    rig.large(devices=(2,))
    whole, one = rig.calls()
    assert isinstance(whole, m.Put)
    assert whole.slice == rig.places.roots[0]
    assert whole.value.sharding.dims == ((0,), ())
    assert (one.slice.of, one.slice.picks) == ("devices", (2,))
    offered = rig.link.offers[whole.buffer].array()
    assert offered is not None
    assert offered.shape == (128, 64)


def test_what_does_not_fit_into_a_call_together_is_put_once_the_largest_first(rig: ClusterRig) -> None:
    step = rig.executable([(900,), (100,), (50,)], [(2,)])
    arguments = [rig.put(np.ones(size)) for size in (900, 100, 50)]
    _made = [rig.run(step, *arguments) for _ in range(2)]
    put, *submits = rig.calls()
    assert put.value.shape == (900,)
    for submit in submits:
        assert submit.args[0] == put.buffer
        assert [len(each) for each in submit.args[1:]] == [400, 200]


def test_an_array_is_fetched_once_for_all_who_read_its_shards(rig: ClusterRig) -> None:
    x = rig.large(devices=(0, 1, 2, 3), tiles=ROWS)
    rig.calls()
    shards = rig.devices.shards(x)
    told = [rig.fetched(shard) for shard in shards]
    (get,) = rig.calls()
    contents = np.arange(8192).reshape(128, 64)
    rig.brings(get.request, contents)
    assert [each[0].tolist() for each in told] == [contents[at : at + 32].tolist() for at in range(0, 128, 32)]
    rig.fetched(rig.devices.shards(x)[0])
    assert len(rig.calls()) == 1  # contents are not kept for ever


# --- runs -----------------------------------------------------------------------------------------------------


def test_results_have_names_at_once_and_are_ready_when_it_is_said(rig: ClusterRig) -> None:
    step = rig.executable(results=[(128, 64)] * 2)
    x = rig.large()
    first, second = rig.run(step, x)
    put, submit = rig.calls()
    assert submit.args == (put.buffer,)
    told = rig.told(first, second)
    rig.ready(submit.results[0])
    assert told == []
    rig.ready(submit.results[1])
    assert told == [None]


def test_dropped_arrays_are_released_together_and_with_the_next_call(rig: ClusterRig) -> None:
    step = rig.executable(results=[(128, 64)] * 3)
    x = rig.large()
    results = rig.run(step, x)
    names = rig.calls()[1].results
    del results
    (release,) = rig.later()
    assert release == m.Release((Range(names[0], 3),)) or release.buffers == tuple(names)
    x = rig.run(step, x)[0]
    del x
    first = rig.calls()[0].results
    y = rig.large()
    kept = rig.run(step, y)
    submit, release = rig.calls()[1:]
    assert isinstance(submit, m.Submit)
    assert release.buffers[:2] == (1, Range(first[0], 3))
    assert rig.later() == []
    assert len(kept) == 3


def test_donated_arguments_are_gone_and_not_released(rig: ClusterRig) -> None:
    step = rig.executable(donated=[0])
    x = rig.large()
    (y,) = rig.run(step, x)
    assert rig.devices.is_deleted(x)
    del x
    assert [type(call) for call in rig.calls() + rig.later()] == [m.Put, m.Submit]
    told = rig.told(y)
    rig.ready(2)
    assert told == [None]


def test_arguments_that_are_to_be_kept_go_to_a_program_that_takes_none(rig: ClusterRig) -> None:
    step = rig.executable(donated=[0])
    x = rig.large()
    rig.run(step, x, keep=[0])
    _put, register, submit = rig.calls()
    assert register.ir.donate_args == ()
    assert submit.program == register.program != step.giving
    assert not rig.devices.is_deleted(x)


def test_an_array_that_is_donated_and_passed_again_is_not_taken(rig: ClusterRig) -> None:
    step = rig.executable([(128, 64)] * 2, donated=[0])
    x = rig.large()
    rig.run(step, x, x)
    assert not rig.devices.is_deleted(x)


def test_a_used_donated_array_says_so(rig: ClusterRig) -> None:
    step = rig.executable(donated=[0])
    x = rig.large()
    rig.run(step, x)
    (late,) = rig.run(step, x)
    told = rig.told(late)
    assert told[0].code == StatusCode.INVALID_ARGUMENT
    assert "deleted or donated" in told[0].text


def test_a_program_that_takes_another_time_than_was_said_is_registered_anew(rig: ClusterRig) -> None:
    step = rig.executable()
    x = rig.large()
    old = step.giving
    rig.programs.priced({"step": (2, 40_000_000), "other": (9, 5)})  # too few to be believed
    assert [type(call) for call in rig.calls()] == [m.Put]
    rig.programs.priced({"step": (3, 40_000_000)})
    register, unregister = rig.calls()
    assert register.ir.computations[0].cost == 40_000_000
    assert unregister == m.Unregister(old)
    rig.programs.priced({"step": (50, 45_000_000)})  # near enough
    rig.run(step, x)
    (submit, *_) = rig.calls()
    assert submit.program == register.program


def test_two_programs_of_one_name_have_steps_of_their_own_by_which_each_is_priced(rig: ClusterRig) -> None:
    assert [rig.programs._step_of("step", code) for code in ("c0de", "f00d", "c0de")] == ["step", "step.2", "step"]
    first, second = rig.executable(), rig.executable(step="step.2")
    rig.programs.priced({"step": (9, 3_000_000), "step.2": (9, 8_000_000)})
    assert [each.ir.computations[0].cost for each in (first, second)] == [3_000_000, 8_000_000]


# --- what the program waits for ----------------------------------------------------------------------------------


def test_a_call_says_for_which_runs_the_program_had_waited_and_how_long_it_then_took(rig: ClusterRig) -> None:
    step = rig.executable()
    (first,) = rig.run(step, rig.large())
    told = rig.told(first)
    rig.link.clock = 500
    rig.link.say(m.Ended(1))
    assert told == [None]
    rig.link.clock = 700
    rig.calls()
    rig.run(step, first)
    (submit, *_) = rig.calls()
    assert (submit.waited, submit.think) == ((1,), 200)
    rig.run(step, first)
    assert rig.calls()[0].waited == ()


def test_a_program_that_calls_meanwhile_does_not_wait_and_contents_that_are_there_are_no_wait(rig: ClusterRig) -> None:
    step, told = rig.executable(), Told()
    x = rig.large()
    (first,) = rig.run(step, x)
    rig.devices.when_ready([first], told)
    rig.run(step, x)
    rig.link.say(m.Ended(1))
    rig.devices.when_ready([x], told)  # it was put, and no run has made it
    rig.ready(x.name)
    assert told == [None, None]
    rig.calls()
    rig.run(step, x)
    assert rig.calls()[0].waited == ()


def test_arrays_that_are_ready_are_copied_by_one_call_and_others_by_one_for_each_call_that_makes_them(
    rig: ClusterRig,
) -> None:
    step = rig.executable(results=[(128, 64)] * 2)
    x, y = rig.large(), rig.large(2)
    first, second = rig.run(step, x)
    one, other, submit = rig.calls()
    rig.ready(one.buffer, other.buffer)
    there = ArrayType(F32, (128, 64), ShardSpec((2,), Tiles()))
    copies = rig.devices.copy([ArrayCopy(each.type, there, each) for each in (first, x, second, y)], False)
    calls = [call for call in rig.calls() if isinstance(call, m.Submit)]
    assert [call.args for call in calls] == [submit.results, (one.buffer, other.buffer)]
    told = [rig.told(copy) for copy in copies]
    rig.link.say(m.Ended(calls[0].run, HOST_LOST), m.Ended(calls[1].run))
    rig.ready(*ranges.each(calls[1].results))
    assert [None if each[0] is None else each[0].code for each in told] == [StatusCode.DATA_LOSS, None] * 2


# --- faults ---------------------------------------------------------------------------------------------------


def test_a_failed_run_spoils_its_results_with_the_code_of_its_blame(rig: ClusterRig) -> None:
    step = rig.executable()
    (y,) = rig.run(step, rig.large())
    run = rig.calls()[1].run
    told = rig.told(y)
    rig.link.say(m.Ended(run, Blame("timeout", "it went wrong", "step")))
    assert told[0].code == StatusCode.DEADLINE_EXCEEDED
    assert "it went wrong" in told[0].text
    assert "DEADLINE" not in told[0].text  # JAX's client puts it in front
    assert rig.fetched(y)[0].code == told[0].code
    (z,) = rig.run(step, y)
    assert rig.fetched(z)[0].code == told[0].code
    assert rig.calls() == []  # nothing of it was called


def test_a_ready_array_may_be_lost_later(rig: ClusterRig) -> None:
    x = rig.large()
    buffer = rig.calls()[0].buffer
    rig.ready(buffer)
    told = rig.told(x)
    assert told == [None]
    rig.ready(buffer, blame=HOST_LOST)
    assert rig.fetched(x)[0].code == StatusCode.DATA_LOSS


def test_a_fetch_that_is_refused_says_why(rig: ClusterRig) -> None:
    x = rig.large()
    told = rig.fetched(x)
    rig.brings(rig.calls()[1].request, None, Blame("no-memory", "no room for it"))
    assert told[0].code == StatusCode.RESOURCE_EXHAUSTED


def test_a_lost_controller_ends_all_waits(rig: ClusterRig) -> None:
    step = rig.executable()
    (y,) = rig.run(step, rig.large())
    told, got = rig.told(y), rig.fetched(y)
    rig.link.failed(StatusError(StatusCode.UNAVAILABLE, "the controller is gone"))
    assert told[0].text == got[0].text == "the controller is gone"
    assert rig.fetched(rig.run(step, y)[0])[0].text == "the controller is gone"


# --- order, and room ------------------------------------------------------------------------------------------


def test_without_room_calls_wait_and_keep_their_order() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    step, taking = rig.executable(), rig.executable(donated=[0])
    x = rig.large()
    results = [rig.run(step, x)[0], rig.run(step, x)[0], rig.run(taking, x)[0]]
    told = rig.fetched(results[2])
    submits = [call for call in rig.calls() if isinstance(call, m.Submit)]
    assert len(submits) == 1
    rig.link.say(m.Ended(1))
    rig.link.say(m.Ended(2))
    submits += rig.calls()
    assert [call.program for call in submits[:3]] == [step.giving, step.giving, taking.giving]
    assert isinstance(submits[3], m.Get)
    assert told == []


def test_a_session_whose_calls_wait_is_crowded_until_there_is_room() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=1))
    step = rig.executable()
    x = rig.large()
    resumed: list[int] = []
    held = []
    while not rig.devices.crowded(lambda: resumed.append(1)):
        held += rig.run(step, x)
        assert len(held) < 1000
    for run in range(1, len(held) + 1):
        rig.link.say(m.Ended(run))
    assert resumed == [1]
    assert not rig.devices.crowded(lambda: None)


def large_rows(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """An array in rows on four devices, of which nothing is too small to be read alone; and its shards."""
    monkeypatch.setattr(cluster_answers, "SAVED", 0)
    x = rig.large(devices=(0, 1, 2, 3), tiles=ROWS)
    rig.calls()
    return x, rig.devices.shards(x)


def test_a_shard_of_a_large_array_is_read_alone_once_for_all_who_read_it_at_a_time(
    rig: ClusterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, shards = large_rows(rig, monkeypatch)
    told = [rig.fetched(shards[2]) for _ in range(2)]
    (get,) = rig.calls()
    assert (get.buffer, get.shard) == (x.name, 2)
    rig.brings(get.request, np.full((32, 64), 7))
    assert [each[0].shape for each in told] == [(32, 64)] * 2
    rig.fetched(shards[2])
    assert [call.shard for call in rig.calls()] == [2]


def test_whoever_reads_more_than_a_few_shards_gets_the_whole_array(
    rig: ClusterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_answers, "FEW", 2)
    _, shards = large_rows(rig, monkeypatch)
    told = [rig.fetched(shard) for shard in shards]
    gets = rig.calls()
    assert [get.shard for get in gets] == [0, 1, -1]
    for get in gets[:2]:
        rig.brings(get.request, np.full((32, 64), get.shard))
    rig.brings(gets[2].request, np.repeat(np.arange(4), 32)[:, None] * np.ones((128, 64)))
    assert [float(each[0][0, 0]) for each in told] == [0, 1, 2, 3]
    assert {each[0].shape for each in told} == {(32, 64)}


def test_devices_that_have_the_same_shard_read_the_same(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns, each on two devices."""
    monkeypatch.setattr(cluster_answers, "SAVED", 0)
    halves = Tiles((1, 2), ((2, 0),), (4,), (0,))
    shards: Any = rig.devices.shards(rig.large(devices=(0, 1, 2, 3), tiles=halves))
    rig.calls()
    assert [shard.parts.number(shard.at) for shard in shards] == [0, 0, 1, 1]
    told = [rig.fetched(shard) for shard in shards]
    assert [get.shard for get in rig.calls()] == [0, 1]
    rig.link.failed(StatusError(StatusCode.UNAVAILABLE, "the controller is gone"))
    assert [each[0].text for each in told] == ["the controller is gone"] * 4


def test_a_shard_of_a_lost_array_is_lost(rig: ClusterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    x, shards = large_rows(rig, monkeypatch)
    rig.ready(x.name, blame=HOST_LOST)
    assert rig.fetched(shards[1])[0].code == StatusCode.DATA_LOSS
    assert rig.calls() == []


# --- together and apart -----------------------------------------------------------------------------------------


def rows(shape: tuple[int, ...]) -> ArrayType:
    return ArrayType(F32, shape, ShardSpec((0, 1, 2, 3), ROWS))


def test_all_shards_of_an_array_in_their_order_are_the_array(rig: ClusterRig) -> None:
    x = rig.large(devices=(0, 1, 2, 3), tiles=ROWS)
    shards = rig.devices.shards(x)
    assert rig.devices.assemble(rows((128, 64)), shards) is x
    assert rig.devices.assemble(rows((128, 64)), shards[::-1]) is not x


def test_an_array_of_arrays_that_lie_elsewhere_is_made_through_here(rig: ClusterRig) -> None:
    parts = [rig.put(np.full((32, 64), at)) if at else rig.put(np.zeros((32, 64))) for at in range(4)]
    made = rig.devices.assemble(rows((128, 64)), parts)
    told = rig.told(made)
    gets = [call for call in rig.calls() if isinstance(call, m.Get)]
    for at, get in enumerate(gets):
        rig.brings(get.request, np.full((32, 64), at))
    (put,) = rig.calls()
    offered = rig.link.offers[put.buffer].array()
    assert offered is not None
    assert offered[:, 0].tolist() == [at for at in range(4) for _ in range(32)]
    assert told == []
    rig.ready(put.buffer)
    assert told == [None]


def test_small_arrays_are_put_together_without_a_call(rig: ClusterRig) -> None:
    parts = [rig.put([at], devices=(at,)) for at in range(4)]
    array_type = ArrayType(F32, (4,), ShardSpec((0, 1, 2, 3), type(ROWS)((4,), (), (4,), (0,))))
    made = rig.devices.assemble(array_type, parts)
    assert rig.fetched(made)[0].tolist() == [0, 1, 2, 3]
    assert rig.calls() == []


def test_an_array_made_of_a_lost_one_is_lost(rig: ClusterRig) -> None:
    parts = [rig.put(np.zeros((32, 64))) for _ in range(4)]
    buffers = [call.buffer for call in rig.calls()]
    rig.ready(buffers[1], blame=HOST_LOST)
    made = rig.devices.assemble(rows((128, 64)), parts)
    assert rig.fetched(made)[0].code == StatusCode.DATA_LOSS


# --- the end ----------------------------------------------------------------------------------------------------


def test_deleting_frees_at_once_although_there_are_references(rig: ClusterRig) -> None:
    x = rig.large()
    (put,) = rig.calls()
    rig.devices.delete(x)
    assert rig.devices.is_deleted(x)
    assert rig.later() == [m.Release((put.buffer,))]
    del x
    assert rig.later() == []


def test_the_end_of_a_session_closes_its_client(rig: ClusterRig) -> None:
    x = rig.large()
    rig.devices.close()
    assert rig.link.closed
    del x
    assert rig.later() != [m.Release((1,))]

"""A session's arrays made of shards, and shards that are used alone, are core's views: no contents come here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.cluster.cluster_arrays import sources_of
from backend.door.protocol.ifrt_messages import StatusCode
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayType
from core.client import Limits
from core.protocol import messages as m

from ..cluster_rig import F32, HOST_LOST, ROWS, ClusterRig

ALL = (0, 1, 2, 3)
SHARD = (32, 64)


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig()


def rows(devices: tuple[int, ...] = ALL) -> ArrayType:
    return ArrayType(F32, (32 * len(devices), 64), ShardSpec(devices, Tiles((len(devices), 1), (), (4,), (0,))))


def parts(rig: ClusterRig, *, small: bool = False) -> list[Any]:
    """An array on each device."""
    shape = (2,) if small else SHARD
    return [rig.put(np.full(shape, at), devices=(at,)) for at in ALL]


def made_of(rig: ClusterRig, array_type: ArrayType, shards: Any) -> Any:
    return rig.devices.assemble(array_type, shards)


def shards_of(rig: ClusterRig, array: Any) -> list[Any]:
    return rig.devices.shards(array)


# --- arrays made of shards --------------------------------------------------------------------------------------


def test_an_array_made_of_four_is_a_view_of_them(rig: ClusterRig) -> None:
    shards = parts(rig)
    puts = [call.buffer for call in rig.calls()]
    made = made_of(rig, rows(), shards)
    (view,) = rig.calls()
    assert isinstance(view, m.View)
    assert view.shards == tuple((buffer, 0) for buffer in puts)
    assert (view.value.shape, view.slice) == ((128, 64), rig.places.roots[0])
    told = rig.told(made)
    assert told == []
    rig.ready(*puts, view.buffer)
    assert told == [None]


def test_it_is_made_in_the_order_of_calls_and_used_at_once(rig: ClusterRig) -> None:
    step = rig.executable([(128, 64)], devices=ALL, tiles=ROWS)
    alone = [rig.executable([SHARD], [SHARD], devices=(at,)) for at in ALL]
    made = [rig.run(each, shard)[0] for each, shard in zip(alone, parts(rig), strict=True)]
    _result = rig.run(step, made_of(rig, rows(), made))
    *_, view, submit = (call for call in rig.calls() if not isinstance(call, m.Release))
    assert view.shards == tuple((each.name, 0) for each in made)
    assert submit.args == (view.buffer,)


def test_its_sources_may_be_dropped_or_deleted_and_it_lives_on(rig: ClusterRig) -> None:
    shards = parts(rig)
    made = made_of(rig, rows(), shards)
    *puts, view = rig.calls()
    rig.devices.delete(shards.pop())
    del shards
    released = [name for call in rig.later() for name in call.buffers]
    assert len(released) >= 1
    assert view.buffer not in released
    assert not rig.devices.is_deleted(made)
    rig.devices.delete(made)
    assert rig.later() == [m.Release((view.buffer,))]
    assert len(puts) == 4


def test_a_donated_view_is_gone_and_its_sources_are_not(rig: ClusterRig) -> None:
    step = rig.executable([(128, 64)], devices=ALL, tiles=ROWS, donated=[0])
    shards = parts(rig)
    made = made_of(rig, rows(), shards)
    _result = rig.run(step, made)
    assert rig.devices.is_deleted(made)
    assert not any(map(rig.devices.is_deleted, shards))
    told = rig.fetched(shards[2])
    assert isinstance(rig.calls()[-1], m.Get)
    assert told == []


def test_shards_of_an_array_whose_devices_are_in_another_order_are_viewed_one_by_one(rig: ClusterRig) -> None:
    x = rig.large(devices=ALL, tiles=ROWS)
    shards = shards_of(rig, x)
    _made = made_of(rig, rows(ALL[::-1]), shards[::-1])
    put, view = rig.calls()
    assert view.shards == tuple((put.buffer, at) for at in (3, 2, 1, 0))


def test_a_view_of_a_view_names_the_view(rig: ClusterRig) -> None:
    made = made_of(rig, rows(), parts(rig))
    rig.calls()
    again = made_of(rig, rows(ALL[::-1]), shards_of(rig, made)[::-1])
    (view,) = rig.calls()
    assert view.shards == tuple((made.name, at) for at in (3, 2, 1, 0))
    assert again.name == view.buffer


def test_small_arrays_stay_here_and_several_are_put_as_one(rig: ClusterRig) -> None:
    shards = [rig.put(np.full((16, 64), at), devices=(at,)) for at in ALL]
    assert rig.calls() == []
    spec = ShardSpec(ALL, Tiles((4, 1), (), (4,), (0,)))
    _made = made_of(rig, ArrayType(F32, (64, 64), spec), shards)
    (put,) = rig.calls()
    assert isinstance(put, m.Put)
    offered = rig.link.offers[put.buffer].array()
    assert offered is not None
    assert offered[:, 0].tolist() == [at for at in ALL for _ in range(16)]


def test_what_is_here_is_put_before_it_is_shared_with_what_is_there(rig: ClusterRig) -> None:
    first = rig.run(rig.executable([(2,)], [(2,)]), rig.put([1, 2]))[0]
    rig.calls()
    spec = ShardSpec(ALL, Tiles((4,), (), (4,), (0,)))
    _made = made_of(rig, ArrayType(F32, (8,), spec), [first, *parts(rig, small=True)[1:]])
    *puts, view = rig.calls()
    assert [type(call) for call in puts] == [m.Put] * 3
    assert view.shards == tuple((name, 0) for name in (first.name, *(put.buffer for put in puts)))


def test_numbers_in_a_stack_are_put_together_here(rig: ClusterRig) -> None:
    """On their devices they have no dimension, and one in core's array."""
    made = [rig.run(rig.executable([()], [()], devices=(at,)), rig.put(1, devices=(at,)))[0] for at in ALL]
    rig.calls()
    guessed = ArrayType(F32, (), ShardSpec(ALL, shard=()))
    _stack = made_of(rig, guessed, made)
    assert [type(call) for call in rig.calls()] == [m.Get] * 4


# --- shards that are used alone -----------------------------------------------------------------------------------


def test_a_shard_that_is_used_is_a_view_once(rig: ClusterRig) -> None:
    x = rig.large(devices=ALL, tiles=ROWS)
    step = rig.executable([SHARD], [(2,)], devices=(2,))
    shard = shards_of(rig, x)[2]
    _made = [rig.run(step, shard) for _ in range(2)]
    put, view, *submits = rig.calls()
    assert view.shards == ((put.buffer, 2),)
    assert view.slice.picks == (2,)
    assert [call.args for call in submits] == [(view.buffer,)] * 2


def test_it_outlives_its_array(rig: ClusterRig) -> None:
    x = rig.large(devices=ALL, tiles=ROWS)
    step = rig.executable([SHARD], [(2,)], devices=(2,))
    shard = shards_of(rig, x)[2]
    _first = rig.run(step, shard)
    rig.devices.delete(x)
    _second = rig.run(step, shard)
    assert not rig.devices.is_deleted(shard)
    assert [call.args for call in rig.calls() if isinstance(call, m.Submit)] == [(shard.alone.name,)] * 2


def test_a_shard_of_an_array_that_is_here_is_here(rig: ClusterRig) -> None:
    x = rig.put(np.arange(8), devices=ALL, tiles=Tiles((4,), (), (4,), (0,)))
    step = rig.executable([(2,)], [(2,)], devices=(3,))
    _made = rig.run(step, shards_of(rig, x)[3])
    (submit,) = rig.calls()
    assert submit.args == (np.array([6, 7], np.float32).tobytes(),)


# --- what is wrong --------------------------------------------------------------------------------------------------


def test_a_view_of_what_is_lost_is_lost_and_one_of_what_is_deleted_is_an_error(rig: ClusterRig) -> None:
    shards = parts(rig)
    puts = [call.buffer for call in rig.calls()]
    made = made_of(rig, rows(), shards)
    (view,) = rig.calls()
    rig.ready(puts[1], view.buffer, blame=HOST_LOST)
    for lost in (made, made_of(rig, rows(), shards)):
        assert rig.fetched(lost)[0].code == StatusCode.DATA_LOSS
    rig.devices.delete(shards[1])
    deleted = made_of(rig, rows(), shards)
    assert rig.fetched(deleted)[0].code == StatusCode.INVALID_ARGUMENT
    assert not any(isinstance(call, m.View) for call in rig.calls())


def test_without_room_it_waits_and_so_does_what_follows() -> None:
    rig = ClusterRig(Limits(pipe=1 << 20, max_runs=4))
    step = rig.executable(devices=(0,))
    busy = [rig.run(step, rig.large()) for _ in range(5)]
    rig.calls()
    shards = shards_of(rig, rig.large(devices=ALL, tiles=ROWS))
    _made = made_of(rig, rows(ALL[::-1]), shards[::-1])
    assert rig.calls() == []
    rig.link.say(m.Ended(1))
    *_, view = rig.calls()
    assert isinstance(view, m.View)
    assert len(busy) == 5


# --- laws -----------------------------------------------------------------------------------------------------------

tiles = st.sampled_from([
    Tiles(), Tiles((4, 1), (), (4,), (0,)), Tiles((1, 4), (), (4,), (0,)), Tiles((2, 2), (), (4,), (0,)),
    Tiles((2, 1), ((2, 0),), (4,), (0,)), Tiles((2, 2), (), (2, 2), (1, 0)),
])  # fmt: skip


@given(tiles, tiles, st.permutations(ALL))
def test_a_view_has_the_shards_that_it_names(cut: Tiles, other: Tiles, order: list[int]) -> None:
    """Whatever the two arrays mean: on each device, the view's shard is that of the array of which it is made."""
    rig, whole = ClusterRig(), np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    x = rig.put(whole, devices=ALL, tiles=cut)
    shards = shards_of(rig, x)
    shape, spec = x.type.shard_shape, ShardSpec(tuple(order), other)
    target = ArrayType(F32, tuple(a * b for a, b in zip(shape, (other.grid or (1, 1))[:2], strict=True)), spec)
    found = sources_of(target, [shards[device] for device in order])
    assert found is not None
    for device, source in zip(order, found, strict=True):
        contents = whole[source.box]
        assert contents.shape == shape
        assert np.array_equal(contents, whole[shards[device].parts.boxes[device]])

"""Arrays of a cluster that are cut otherwise: core moves them, but for those whose cut only the door knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles
from backend.door.session.session_devices import ArrayCopy, ArrayType
from core.model import Reshard
from core.protocol import effects as e
from core.protocol import messages as m

from ..cluster_rig import F32, HOST_LOST, ROWS, ClusterRig

SAME = Tiles((2, 1), (), (1, 2), (0, 1))  # two rows
COLUMNS = Tiles((1, 2), (), (2,), (0,))
ODD = Tiles((4, 1), (), (), (), (2, 0, 3, 1))  # no mesh of these devices in this order has its shards there
X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


@pytest.fixture
def rig() -> ClusterRig:
    return ClusterRig()


def put(rig: ClusterRig, contents: Any, devices: tuple[int, ...], tiles: Tiles) -> Any:
    spec = ShardSpec(devices, tiles)
    return rig.devices.put(ArrayType(F32, contents.shape, spec), [contents[box] for box in spec.boxes(contents.shape)])


def copied(rig: ClusterRig, array: Any, devices: tuple[int, ...], tiles: Tiles, **how: Any) -> Any:
    target = ArrayType(F32, array.type.shape, ShardSpec(devices, tiles))
    (found,) = rig.devices.copy([ArrayCopy(array.type, target, array)], **{"always": False, **how})
    return found


def names(calls: list[Any]) -> list[str]:
    return [type(call).__name__ for call in calls]


def test_core_moves_what_it_knows_both_cuts_of(rig: ClusterRig) -> None:
    array = put(rig, X, (0, 1, 2, 3), ROWS)
    copied(rig, array, (3, 1), COLUMNS)
    sent, register, submit = rig.calls()
    (node,) = register.ir.nodes
    assert isinstance(node, Reshard)
    assert [value.sharding.dims for value in (*register.ir.args, *node.outputs)] == [((0,), ()), ((), (0,))]
    assert submit.args == (sent.buffer,)


def test_another_cut_on_the_same_devices_is_another_array_and_the_same_cut_is_the_same(rig: ClusterRig) -> None:
    array = put(rig, X, (0, 1), Tiles((2, 1), (), (2,), (0,)))
    rig.calls()
    assert copied(rig, array, (0, 1), SAME) is array
    assert rig.calls() == []
    assert copied(rig, array, (0, 1), COLUMNS) is not array
    assert names(rig.calls()) == ["Register", "Submit"]


def test_what_is_donated_is_released_behind_the_call_that_takes_it(rig: ClusterRig) -> None:
    step = rig.executable(devices=(0, 1, 2, 3), tiles=ROWS)
    (array,) = rig.run(step, put(rig, X, (0, 1, 2, 3), ROWS))
    rig.calls()
    copy = copied(rig, array, (3, 1), COLUMNS, donate=True)
    assert array.gone
    assert names(rig.calls()) == ["Register", "Submit", "Release"]
    assert rig.later() == [m.Release((array.name,))]
    assert not copy.gone


@pytest.mark.parametrize(("source", "target"), [(ODD, ROWS), (ROWS, ODD), (ODD, Tiles())])
@pytest.mark.parametrize("donate", [False, True])
def test_what_core_knows_as_a_stack_comes_here_and_is_put_again(
    rig: ClusterRig, source: Tiles, target: Tiles, donate: bool
) -> None:
    array = put(rig, X, (0, 1, 2, 3), source)
    rig.ready(array.name)
    rig.calls()
    made = copied(rig, array, (0, 1, 2, 3), target, donate=donate)
    gets = [call for call in rig.calls() if isinstance(call, m.Get)]
    assert gets
    stack = np.concatenate([X[box] for box in array.type.sharding.boxes(X.shape)])
    for get in gets:
        rig.brings(get.request, stack if source is ODD else X)
    (sent,) = [call for call in rig.calls() if isinstance(call, m.Put)]
    assert made.name == sent.buffer
    wanted = np.concatenate([X[box] for box in made.type.sharding.boxes(X.shape)]) if target is ODD else X
    np.testing.assert_array_equal(rig.link.offers[sent.buffer].array(), wanted)
    assert array.gone == donate


@pytest.mark.parametrize("tiles", [ROWS, ODD, Tiles()])
def test_a_small_array_that_is_here_stays_here(rig: ClusterRig, tiles: Tiles) -> None:
    small = np.arange(16, dtype=np.float32).reshape(4, 4)
    for source in (ROWS, ODD, Tiles()):
        made = copied(rig, put(rig, small, (0, 1, 2, 3), source), (3, 2, 1, 0), tiles, always=True)
        for shard, box in zip(rig.devices.shards(made), made.type.sharding.boxes((4, 4)), strict=True):
            (found,) = rig.fetched(shard)
            np.testing.assert_array_equal(found, small[box])
    assert rig.calls() == []


def test_a_host_that_is_lost_is_told_to_who_waits_for_the_copy(rig: ClusterRig) -> None:
    array = put(rig, X, (0, 1, 2, 3), ODD)
    rig.ready(array.name)
    made = copied(rig, array, (0, 1, 2, 3), ROWS)
    told = rig.told(made)
    (get, *_) = [call for call in rig.calls() if isinstance(call, m.Get)]
    rig.link.heard(e.CallRefused("get", get.request, HOST_LOST))
    assert "host 1 is gone" in told[0].text

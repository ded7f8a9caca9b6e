"""Shardings of the protocol as core's, against JAX's own: each device has the same part of the array."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.cluster.cluster_arrays import ClusterArray, ShardedContents
from backend.door.cluster.cluster_layouts import boxes_of, value_of, whole_of
from backend.door.protocol.ifrt_messages import TOKEN, DTypeProto, OpSharding
from backend.door.protocol.ifrt_shardings import ShardSpec, Tiles, tiles_of
from backend.door.session.session_devices import ArrayType, StatusError
from core.model import Layout, Sharding, Shards, line

F32: int = DTypeProto.KIND_F32


def typed(shape: tuple[int, ...], tiles: Tiles, count: int) -> ArrayType:
    return ArrayType(F32, shape, ShardSpec(tuple(range(count)), tiles))


def sharding_of(array_type: ArrayType) -> Sharding:
    return value_of(array_type, 0).sharding


def core_boxes(array_type: ArrayType) -> list[tuple[slice, ...]]:
    """Where core would have each device's shard."""
    sharding, count = sharding_of(array_type), len(array_type.sharding.devices)
    dims = sharding.dims
    layout = Layout(array_type.shape, "float32", line(0, 0, count), sharding.mesh or (count,), Sharding(dims))
    shards = Shards(layout)
    return [
        tuple(slice(at * size, (at + 1) * size) for at, size in zip(shards.shard_of(device), shards.size, strict=True))
        for device in range(count)
    ]


@st.composite
def meshes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[tuple[int, ...]]]:
    """A mesh, an order of its axes, and the axes that split each dimension."""
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=4)))
    if prod(sizes) > 24:
        sizes = sizes[:2]
    axes = draw(st.permutations(range(len(sizes))))
    rank = draw(st.integers(1, 3))
    dims: list[list[int]] = [[] for _ in range(rank)]
    for axis in axes:
        at = draw(st.integers(-1, rank - 1))
        if at >= 0:
            dims[at].append(axis)
    return sizes, list(axes), [tuple(each) for each in dims]


def op_of(sizes: tuple[int, ...], dims: list[tuple[int, ...]]) -> Any:
    """What JAX sends for a NamedSharding whose devices are 0, 1, ...: the iota form."""
    names = [f"a{at}" for at in range(len(sizes))]
    mesh = jax.sharding.AbstractMesh(sizes, tuple(names))
    make: Any = jax.sharding.PartitionSpec
    spec = make(*(tuple(names[axis] for axis in each) or None for each in dims))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    proto = sharding._to_xla_hlo_sharding(len(dims)).to_proto()
    return OpSharding.FromString(proto.SerializeToString())


@given(meshes())
def test_core_cuts_an_array_as_jax_does(mesh: Any) -> None:
    sizes, _, dims = mesh
    count = prod(sizes)
    parts = [prod(sizes[axis] for axis in each) for each in dims]
    shape = tuple(2 * part for part in parts)
    array_type = typed(shape, tiles_of(op_of(sizes, dims), count), count)
    expected = []
    for cell in product(*map(range, sizes)):
        box = []
        for axes in dims:
            at = 0
            for axis in axes:
                at = at * sizes[axis] + cell[axis]
            box.append(slice(2 * at, 2 * at + 2))
        expected.append(tuple(box))
    assert core_boxes(array_type) == expected
    assert list(boxes_of(array_type)) == expected


@given(meshes())
def test_a_devices_shard_has_the_number_that_core_gives_it(mesh: Any) -> None:
    sizes, _, dims = mesh
    count = prod(sizes)
    shape = tuple(3 * prod(sizes[axis] for axis in each) for each in dims)
    array_type = typed(shape, tiles_of(op_of(sizes, dims), count), count)
    sharding, parts = sharding_of(array_type), ShardedContents(ClusterArray(array_type, lambda name: None))
    layout = Layout(shape, "float32", line(0, 0, count), sharding.mesh or (count,), Sharding(sharding.dims))
    shards = Shards(layout)
    numbers = [shards.ordinal(shards.shard_of(device)) for device in range(count)]
    assert [parts.number(at) for at in range(count)] == numbers
    assert parts.shard_value(0).shape == shards.size


@given(meshes())
def test_one_cut_is_one_sharding_however_it_is_said(mesh: Any) -> None:
    """As a list of devices, and in the iota form: core sees that nothing has to move."""
    sizes, _, dims = mesh
    count = prod(sizes)
    tiles = tiles_of(op_of(sizes, dims), count)
    if not tiles.grid:
        return
    order = np.arange(count).reshape(tiles.reshape or (count,)).transpose(tiles.transpose or (0,)).reshape(-1)
    listed = Tiles(tiles.grid, tiles.groups, (), (), tuple(map(int, order)))
    shape = tuple(2 * cut for cut in tiles.grid)
    assert sharding_of(typed(shape, listed, count)) == sharding_of(typed(shape, tiles, count))


def test_neighbouring_axes_are_one() -> None:
    rows = Tiles((8, 1), (), (8,), (0,))
    assert sharding_of(typed((8, 4), rows, 8)) == Sharding(((0,), ()), (8,))
    block = Tiles((2, 4), (), (8,), (0,))
    assert sharding_of(typed((8, 4), block, 8)) == Sharding(((0,), (1,)), (2, 4))
    columns = Tiles((1, 2), ((4, 0),), (4, 2), (1, 0))
    assert sharding_of(typed((8, 4), columns, 8)) == Sharding(((), (1,)), (4, 2))


def test_a_replicated_array_has_no_mesh() -> None:
    assert sharding_of(typed((4,), Tiles(), 4)) == Sharding()
    assert sharding_of(typed((4,), Tiles((1,), ((4, 0),), (4,), (0,)), 4)) == Sharding()


def test_a_cut_that_no_mesh_has_is_a_stack_of_what_each_device_has() -> None:
    odd = typed((4, 6), Tiles((4, 1), (), (), (), (1, 0, 2, 3)), 4)
    whole = np.arange(24).reshape(4, 6)
    shards = [whole[row : row + 1] for row in (1, 0, 2, 3)]  # of devices 0, 1, 2, 3
    stack = whole_of(odd, shards)
    assert value_of(odd, 0).shape == stack.shape == (4, 6)
    assert value_of(odd, 0).sharding == Sharding(((1,), ()), (1, 4))
    assert [stack[box].tolist() for box in boxes_of(odd)] == [shard.tolist() for shard in shards]


def test_parts_of_a_sum_that_is_still_to_be_made_are_a_stack() -> None:
    summed = typed((2, 3), Tiles(unreduced=True), 4)
    assert value_of(summed, 0).shape == (8, 3)
    parts = [np.full((2, 3), at) for at in range(4)]
    stack = whole_of(summed, parts)
    assert [stack[box].tolist() for box in boxes_of(summed)] == [part.tolist() for part in parts]


def test_single_numbers_that_are_parts_of_a_sum_are_rows_of_a_stack() -> None:
    summed = typed((), Tiles(unreduced=True), 4)
    assert value_of(summed, 0).shape == (4,)
    assert value_of(summed, 0).sharding == Sharding(((1,),), (1, 4))
    stack = whole_of(summed, [np.array(at) for at in range(4)])
    assert [stack[box].tolist() for box in boxes_of(summed)] == [[0], [1], [2], [3]]


def test_tokens_have_no_value() -> None:
    with pytest.raises(StatusError, match="arrays of token are not known"):
        value_of(ArrayType(TOKEN, (), ShardSpec((0,))), 0)


def test_shards_become_the_whole() -> None:
    array_type = typed((4, 6), Tiles((2, 3), ((2, 0),), (2, 2, 3), (1, 2, 0)), 12)
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = whole_of(array_type, [whole[box] for box in boxes_of(array_type)])
    assert (found == whole).all()


def test_a_shard_that_is_the_whole_is_not_copied() -> None:
    whole = np.arange(4, dtype=np.float32)
    assert whole_of(typed((4,), Tiles(), 4), [whole] * 4) is whole

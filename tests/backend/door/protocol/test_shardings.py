"""Shardings: what is read is what was written, shards are what JAX takes them to be, and nothing senseless passes."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_messages import ConcreteEvenShardingProto, HloShardingProto, OpSharding
from backend.door.protocol.ifrt_shardings import ShardingError, ShardSpec, Tiles, op_sharding, read, tiles_of, write

from ..session_rig import named, replicated, single, tiled

REPLICAS, UNREDUCED = OpSharding.REPLICATED, OpSharding.UNREDUCED


@st.composite
def tilings(draw: st.DrawFn) -> tuple[Tiles, int]:
    grid = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3)))
    groups = draw(st.sampled_from([(), ((2, REPLICAS),), ((2, UNREDUCED),), ((2, REPLICAS), (3, UNREDUCED))]))
    count = prod(grid) * prod(size for size, _ in groups)
    if draw(st.booleans()):
        return Tiles(grid, groups, listed=tuple(draw(st.permutations(range(count))))), count
    dims = [each for each in (*grid, *(size for size, _ in groups)) if each > 1] or [1]
    reshape = tuple(draw(st.permutations(dims)))
    return Tiles(grid, groups, reshape, tuple(draw(st.permutations(range(len(reshape)))))), count


@given(tilings(), st.sampled_from(["", "device", "pinned_host"]))
def test_what_is_written_exactly_is_read_again(tiling: tuple[Tiles, int], kind: str) -> None:
    tiles, count = tiling
    if count == 1:
        return
    spec = ShardSpec(tuple(range(count)), tiles, kind)
    shape = tuple(4 * cut for cut in tiles.grid)
    assert read(write(spec, shape, exact=True), count) == spec
    assert tiles_of(op_sharding(tiles), count) == tiles


def test_an_inexact_one_says_only_what_shape_shards_have() -> None:
    spec = ShardSpec((0, 1), Tiles((2, 1), reshape=(2,), transpose=(0,)))
    found = read(write(spec, (4, 6), exact=False), 2)
    assert (found.shard_shape((4, 6)), found.replicated) == ((2, 6), False)
    whole = read(write(ShardSpec((0, 1)), (4, 6), exact=False), 2)
    assert (whole.shard_shape((4, 6)), whole.replicated) == ((4, 6), True)


def test_one_device_and_replicas() -> None:
    assert read(single(3, "pinned_host"), 4) == ShardSpec((3,), memory_kind="pinned_host")
    assert read(replicated([2, 0]), 4) == ShardSpec((2, 0))
    assert read(single(3), 4).shard_shape((5, 6)) == (5, 6)


def test_parts_of_a_sum_are_not_replicas() -> None:
    op = OpSharding(type=UNREDUCED)
    spec = ShardSpec((0, 1), tiles_of(op, 2))
    assert not spec.replicated
    assert spec.shard_shape((4,)) == (4,)


@pytest.mark.parametrize(
    ("sharding", "says"),
    [
        (single(4), "device 4 is not one of this session's: they are 0 to 3"),
        (single(-1), "device -1"),
        (replicated([]), "has no devices"),
        (replicated([0, 0]), "names a device twice"),
        (tiled([2], [0, 1, 2]), "a tiling of [2] is not one of 3 devices"),
        (tiled([0], [0, 1]), "a tiling of [0] is not one of 2 devices"),
        (tiled([-1, -2], [0, 1]), "is not one of 2 devices"),
        (tiled([1 << 62, 4], [0, 1]), "is not one of 2 devices"),
        (tiled([], [0, 1]), "a tiling has no dimensions"),
        (tiled([2], [0, 1], iota_reshape_dims=[3]), "2 devices cannot be arranged as (3,)"),
        (tiled([2] * 100_000, [0, 1]), "or more than 64"),
        (tiled([2], [0, 1], iota_reshape_dims=[2] * 100_000), "or more than 64"),
        (tiled([2], [0, 1], iota_transpose_perm=[0] * 100_000), "or more than 64"),
        (tiled([2], [0, 1], iota_transpose_perm=[1]), "(1,) is not a permutation"),
        (tiled([2], [0, 1], iota_transpose_perm=[]), "() is not a permutation"),
        (tiled([2], [0, 1], iota_reshape_dims=[], iota_transpose_perm=[]), "does not name each of 2 devices once"),
        (tiled([2], [0, 1], last_tile_dims=[OpSharding.MANUAL]), "manual dimensions are not known"),
        (tiled([2], [0, 1], last_tile_dims=[0, 0, 0]), "a tiling has no dimensions"),
        (tiled([2], [0, 1], type=OpSharding.TUPLE), "of type TUPLE are not known"),
        (tiled([2], [0, 1], type=OpSharding.MAXIMAL), "of type MAXIMAL are not known"),
        (named("OpaqueSharding", HloShardingProto()), "'xla::ifrt::OpaqueSharding' are not known here"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_wrong(sharding: Any, says: str) -> None:
    with pytest.raises(ShardingError) as raised:
        read(sharding, 4)
    assert says in str(raised.value)


def test_bytes_that_are_none_and_shards_that_are_no_parts_are_refused() -> None:
    wrong = single()
    wrong.serialized_sharding.data = b"\xff\xff"
    with pytest.raises(ShardingError, match="cannot be read"):
        read(wrong, 4)
    even = ConcreteEvenShardingProto()
    even.devices.device_ids.append(0)
    even.shape.dims.append(2)
    even.shard_shape.dims.append(3)
    with pytest.raises(ShardingError, match="are not parts of"):
        read(named("ConcreteEvenSharding", even), 4)


@given(st.binary(max_size=40), st.sampled_from(["SingleDevice", "Hlo", "ConcreteEven"]))
def test_hostile_bytes_are_a_sharding_that_makes_sense_or_none(data: bytes, name: str) -> None:
    proto = single()
    proto.serialized_sharding.type_name, proto.serialized_sharding.data = f"xla::ifrt::{name}Sharding", data
    try:
        spec = read(proto, 8)
    except ShardingError:
        return
    tiles = spec.tiles
    assert spec.devices
    assert set(spec.devices) <= set(range(8))
    if tiles.grid:
        assert prod(tiles.grid) * prod(size for size, _ in tiles.groups) == len(spec.devices)
        assert sorted(tiles.transpose) == list(range(len(tiles.reshape)))

"""Shardings as the protocol writes them, checked: how an array is cut into shards, and which device has which.

    read(ShardingProto) -> ShardSpec      write(ShardSpec, ...) -> ShardingProto

What a client sends is one device, a replicated array, or a tiling: a grid of tiles over the devices, in the *iota*
form (devices 0..n-1, reshaped, transposed, reshaped to the grid), where last dimensions of the grid may hold replicas.
Every number is checked here, since XLA ends its process when such a message makes no sense. Neighbours:
`ifrt_messages`, `session_devices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from .ifrt_messages import (
    ConcreteEvenShardingProto,
    HloShardingProto,
    OpSharding,
    ShardingProto,
    SingleDeviceShardingProto,
)

Box = tuple[Any, ...]  # slices
SINGLE, HLO, EVEN = (f"xla::ifrt::{name}Sharding" for name in ("SingleDevice", "Hlo", "ConcreteEven"))
MOST_DIMS = 64  # of a tiling; numpy and XLA know no array of more
GROUPS = frozenset((OpSharding.REPLICATED, OpSharding.UNREDUCED))


class ShardingError(ValueError):
    """A sharding that makes no sense, or that is not known here."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """How dimensions are cut. `grid`: the number of tiles of each dimension, empty if nothing is cut. `groups` are the
    devices that share a tile: how many in each last dimension, and the type of that (replicas; or parts of a sum that
    is still to be made, unreduced). Devices fill grid and groups in iota's order, or as `listed`."""

    grid: tuple[int, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()  # size, type
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    unreduced: bool = False  # every device has a part of the sum


REPLICATED = Tiles()


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """`memory_kind`: "" is the devices' default. `shard`: a shard's shape where that is all that is known."""

    devices: tuple[int, ...]
    tiles: Tiles = REPLICATED
    memory_kind: str = ""
    shard: tuple[int, ...] | None = None

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.shard is not None:
            return self.shard
        grid = self.tiles.grid
        return tuple(dim // cut for dim, cut in zip(shape, grid, strict=True)) if grid else shape

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape can be cut so, into equal shards."""
        if self.shard is not None:
            return len(self.shard) == len(shape) and self.guessed(shape) is not None
        grid = self.tiles.grid
        return not grid or (
            len(grid) == len(shape) and all(dim % cut == 0 for dim, cut in zip(shape, grid, strict=True))
        )

    def guessed(self, shape: tuple[int, ...]) -> Tiles | None:
        """Tiles of the right shape where only that is known; which device has which is a guess. None: impossible."""
        assert self.shard is not None
        if any(dim % part if part else dim for dim, part in zip(shape, self.shard, strict=True)):
            return None
        grid = tuple(dim // part if part else 1 for dim, part in zip(shape, self.shard, strict=True))
        count = len(self.devices)
        copies, rest = divmod(count, prod(grid))
        if rest or not copies:
            return None
        groups = ((copies, OpSharding.REPLICATED),) if copies > 1 else ()
        return Tiles(grid, groups, (count,), (0,))

    @property
    def replicated(self) -> bool:
        return prod(self.tiles.grid) == 1 and self.exact

    @property
    def summed(self) -> bool:
        """Whether shards are parts of a sum that is still to be made."""
        return self.tiles.unreduced or any(kind != OpSharding.REPLICATED for _, kind in self.tiles.groups)

    @property
    def exact(self) -> bool:
        """Whether it is known which part of an array each device has, and they are parts of the array itself."""
        return self.shard is None and not self.summed

    def cuts_as(self, other: ShardSpec, shape: tuple[int, ...]) -> bool:
        """Whether an array's shards are the same parts of it, in the same order."""
        if (self.tiles, self.shard) == (other.tiles, other.shard) or len(self.devices) != len(other.devices):
            return len(self.devices) == len(other.devices)
        return self.exact and other.exact and self.boxes(shape) == other.boxes(shape)

    def boxes(self, shape: tuple[int, ...]) -> tuple[Box, ...]:
        """Where the shard of each device lies in an array. It is `exact`."""
        return boxes_of(self.tiles, shape, len(self.devices))

    def on(self, devices: tuple[int, ...], memory_kind: str) -> ShardSpec:
        return ShardSpec(devices, self.tiles, memory_kind, self.shard)


@lru_cache(maxsize=4096)
def boxes_of(tiles: Tiles, shape: tuple[int, ...], count: int) -> tuple[Box, ...]:
    if prod(tiles.grid) == 1:
        return (tuple(slice(0, dim) for dim in shape),) * count
    sizes = [dim // cut for dim, cut in zip(shape, tiles.grid, strict=True)]
    return tuple(
        tuple(slice(at * size, (at + 1) * size) for at, size in zip(map(int, cell), sizes, strict=True))
        for cell in cells_of(tiles, count)
    )


def cells_of(tiles: Tiles, count: int) -> np.ndarray[Any, Any]:
    """Row i: the tile of the sharding's i-th device, as an index of the grid."""
    if tiles.listed:
        order = np.array(tiles.listed)
    else:
        order = np.arange(count).reshape(tiles.reshape or (count,))
        order = order.transpose(tiles.transpose or (0,)).reshape(-1)
    shape = (*tiles.grid, *(size for size, _ in tiles.groups))
    cells = np.empty((count, len(tiles.grid)), np.int64)
    cells[order] = np.stack(np.unravel_index(np.arange(count), shape), axis=-1)[:, : len(tiles.grid)]
    return cells


def cut_otherwise(
    shape: tuple[int, ...], source: ShardSpec, target: ShardSpec, shards: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The shards of the same array for another sharding."""
    whole = np.empty(shape, shards[0].dtype)
    for box, shard in zip(source.boxes(shape), shards, strict=True):
        whole[box] = shard
    return [whole[box] for box in target.boxes(shape)]


# --- reading ----------------------------------------------------------------------------------------------


def read(proto: Any, known: int) -> ShardSpec:
    """Raises ShardingError. `known`: devices are numbered below this."""
    serialized = proto.serialized_sharding
    return _read(serialized.type_name, serialized.data, known)


@lru_cache(maxsize=4096)
def _read(name: str, data: bytes, known: int) -> ShardSpec:
    try:
        if name == SINGLE:
            single = SingleDeviceShardingProto.FromString(data)
            return ShardSpec(checked_devices((single.device_id,), known), REPLICATED, single.memory_kind)
        if name == HLO:
            hlo = HloShardingProto.FromString(data)
            devices = checked_devices(tuple(hlo.devices.device_ids), known)
            return ShardSpec(devices, tiles_of(hlo.xla_op_sharding, len(devices)), hlo.memory_kind)
        if name == EVEN:
            return _even(ConcreteEvenShardingProto.FromString(data), known)
    except DecodeError:
        raise ShardingError(f"the {name} is not what it says: it cannot be read") from None
    raise ShardingError(f"shardings of type {name!r} are not known here")


def checked_devices(devices: tuple[int, ...], known: int) -> tuple[int, ...]:
    if not devices:
        raise ShardingError("a sharding has no devices")
    wrong = [each for each in devices if not 0 <= each < known]
    if wrong:
        raise ShardingError(f"device {wrong[0]} is not one of this session's: they are 0 to {known - 1}")
    if len(set(devices)) != len(devices):
        raise ShardingError(f"a sharding names a device twice: {devices}")
    return devices


def _even(even: Any, known: int) -> ShardSpec:
    """This form does not say which device has which shard: of tiles, only their shape is known."""
    devices = checked_devices(tuple(even.devices.device_ids), known)
    shape, shard = tuple(even.shape.dims), tuple(even.shard_shape.dims)
    if len(shape) != len(shard) or any(not 0 <= part <= whole for whole, part in zip(shape, shard, strict=True)):
        raise ShardingError(f"shards of shape {shard} are not parts of an array of shape {shape}")
    if even.is_fully_replicated or shape == shard:
        return ShardSpec(devices, REPLICATED, even.memory_kind)
    return ShardSpec(devices, REPLICATED, even.memory_kind, shard)


def tiles_of(op: Any, count: int) -> Tiles:
    """The tiles of an OpSharding over `count` devices. Raises ShardingError."""
    if op.type == OpSharding.REPLICATED or (op.type == OpSharding.MAXIMAL and count == 1):
        return REPLICATED
    if op.type == OpSharding.UNREDUCED:
        return Tiles(unreduced=True)
    if op.type != OpSharding.OTHER:
        raise ShardingError(f"shardings of type {_type_name(op.type)} are not known here")
    grid, kinds = tuple(op.tile_assignment_dimensions), tuple(op.last_tile_dims)
    if op.replicate_on_last_tile_dim and not kinds:
        kinds = (OpSharding.REPLICATED,)
    if any(kind not in GROUPS for kind in kinds):
        raise ShardingError("tilings over manual dimensions are not known here")
    most = max(len(grid), len(op.iota_reshape_dims), len(op.iota_transpose_perm))
    if not grid or len(kinds) > len(grid) or most > MOST_DIMS:
        raise ShardingError(f"a tiling has no dimensions, or more than {MOST_DIMS}")
    if not all(0 < cut <= count for cut in grid) or prod(grid) != count:
        raise ShardingError(f"a tiling of {list(grid)} is not one of {count} devices")
    at = len(grid) - len(kinds)
    grid, groups = grid[:at], tuple(zip(grid[at:], kinds, strict=True))
    reshape, transpose = tuple(op.iota_reshape_dims), tuple(op.iota_transpose_perm)
    if reshape:
        if not all(0 < dim <= count for dim in reshape) or prod(reshape) != count:
            raise ShardingError(f"{count} devices cannot be arranged as {reshape}")
        if sorted(transpose) != list(range(len(reshape))):
            raise ShardingError(f"{transpose} is not a permutation of {len(reshape)} dimensions")
        return Tiles(grid, groups, reshape, transpose)
    listed = tuple(op.tile_assignment_devices)
    if len(listed) != count or sorted(listed) != list(range(count)):
        raise ShardingError(f"a tiling does not name each of {count} devices once")
    return Tiles(grid, groups, (), (), listed)


def _type_name(number: int) -> str:
    try:
        return str(OpSharding.Type.Name(number))
    except ValueError:
        return str(number)


# --- writing ----------------------------------------------------------------------------------------------


def op_sharding(tiles: Tiles) -> Any:
    if tiles.unreduced:
        return OpSharding(type=OpSharding.UNREDUCED)
    if not tiles.grid and not tiles.groups:
        return OpSharding(type=OpSharding.REPLICATED)
    kinds = [kind for _, kind in tiles.groups]
    only_replicas = kinds == [OpSharding.REPLICATED]
    return OpSharding(
        type=OpSharding.OTHER, tile_assignment_dimensions=(*tiles.grid, *(size for size, _ in tiles.groups)),
        replicate_on_last_tile_dim=only_replicas, last_tile_dims=() if only_replicas else kinds,
        iota_reshape_dims=tiles.reshape, iota_transpose_perm=tiles.transpose, tile_assignment_devices=tiles.listed,
    )  # fmt: skip


def write(spec: ShardSpec, shape: Sequence[int], exact: bool) -> Any:
    """`exact`: how it is cut, which a client of another version may not understand; otherwise only the shapes."""
    kind = spec.memory_kind or None
    if len(spec.devices) == 1:
        name, proto = SINGLE, SingleDeviceShardingProto(device_id=spec.devices[0], memory_kind=kind)
    elif exact and spec.shard is None:
        name = HLO
        proto = HloShardingProto(memory_kind=kind, xla_op_sharding=op_sharding(spec.tiles))
        proto.devices.device_ids.extend(spec.devices)
    else:
        name = EVEN
        proto = ConcreteEvenShardingProto(memory_kind=kind, is_fully_replicated=spec.replicated)
        proto.devices.device_ids.extend(spec.devices)
        proto.shape.dims.extend(shape)
        proto.shard_shape.dims.extend(spec.shard_shape(tuple(shape)))
    found = ShardingProto()
    found.serialized_sharding.type_name = name
    found.serialized_sharding.data = proto.SerializeToString()
    return found

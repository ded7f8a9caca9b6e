"""How core says what the protocol says of arrays: their types, and where each device's shard lies.

    value_of(ArrayType) -> core's Value       whole_of(ArrayType, shards), boxes_of(ArrayType): contents and shards

The protocol numbers tiles; core splits dimensions along axes of a mesh. Two descriptions of one cut become one
`Sharding`, so core sees that nothing has to move: the mesh has as few axes as the cut allows. If no mesh of these
devices in this order has the cut, if it is not known which device has which shard, or if shards are parts of a sum that
is still to be made, core's array is a *stack*: the shards of all devices, one after the other along the first
dimension. Each device has the same shard as before, and only JAX has to know what they mean together. Neighbours:
`ifrt_shardings`, `cluster_programs`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, permutations
from math import prod
from typing import Any

import numpy as np

from backend.contents import stablehlo_code
from core.model import ITEM_BYTES, Sharding, Value

from ..protocol import Box, Tiles, cells_of, dtype_of, name_of
from ..session import ArrayType, unsupported

Axis = tuple[int, int, int]  # size, the dimension that it splits (-1: none), how many tiles one step along it is
SUB_BYTE = re.compile(r"(?:u?int|float)([124])(?!\d)")  # types of which a byte has several elements
WHOLE = Sharding()
ORDERS = 720  # orders of the prime factors that are tried


@lru_cache(maxsize=8192)
def value_of(array_type: ArrayType, place: int) -> Value:
    """Its type for core; `place`: the index of its slice in the program."""
    dtype = dtype_of(array_type.kind)
    if dtype is None or dtype.name not in ITEM_BYTES:
        raise unsupported(f"arrays of {name_of(array_type.kind)} are not known to the cluster")
    shape, sharding = array_type.shape, _sharding_of(array_type)
    if sharding is None:
        shape, sharding = _stack(array_type)
    return Value(shape, dtype.name, place, sharding)


def boxes_of(array_type: ArrayType) -> tuple[Box, ...]:
    """Where the shard of each device lies in core's array, in the order of the sharding's devices."""
    spec, count = array_type.sharding, len(array_type.sharding.devices)
    if _sharding_of(array_type) is not None:
        return spec.boxes(array_type.shape)
    rows, *rest = _shard_in_stack(array_type)
    others = tuple(slice(0, dim) for dim in rest)
    return tuple((slice(at * rows, (at + 1) * rows), *others) for at in range(count))


def whole_of(array_type: ArrayType, shards: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Core's array of these shards, one for each device; no copy if a shard is all of it."""
    shape, sharding = array_type.shape, _sharding_of(array_type)
    if sharding is None:
        shape, _ = _stack(array_type)
    elif shards[0].shape == shape:
        return shards[0]
    found = np.empty(shape, shards[0].dtype)
    for box, shard in dict(zip(map(_key, boxes_of(array_type)), shards, strict=True)).items():
        found[tuple(slice(*each) for each in box)] = shard
    return found


def default_layout(kind: int, rank: int, packs: bool) -> str:
    """XLA's text of how an array lies on a device: row by row. `packs`: small elements share a byte."""
    dtype = dtype_of(kind)
    if dtype is None:
        raise unsupported(f"arrays of {name_of(kind)} have no layout here")
    packed = SUB_BYTE.match(dtype.name) if packs else None
    return "{" + ",".join(map(str, reversed(range(rank)))) + (f":E({packed[1]})" if packed else "") + "}"


def _stack(array_type: ArrayType) -> tuple[tuple[int, ...], Sharding]:
    """The shape and the sharding of all shards, one after the other."""
    shard, count = _shard_in_stack(array_type), len(array_type.sharding.devices)
    return (shard[0] * count, *shard[1:]), stablehlo_code.stacked(len(shard), count)


def _shard_in_stack(array_type: ArrayType) -> tuple[int, ...]:
    """A single number is a row of one there."""
    return array_type.shard_shape or (1,)


def _key(box: Box) -> tuple[tuple[int, int], ...]:
    return tuple((each.start, each.stop) for each in box)


def _sharding_of(array_type: ArrayType) -> Sharding | None:
    """None: it is a stack."""
    spec = array_type.sharding
    return None if spec.shard is not None else _sharding(spec.tiles, len(spec.devices))


def cut_by_a_mesh(array_type: ArrayType) -> bool:
    """Whether core's array is the array itself, and no stack."""
    return _sharding_of(array_type) is not None


def in_one_way(source: ArrayType, target: ArrayType) -> bool:
    """Whether core's array of both has the same contents, however these types cut it."""
    if source.sharding.cuts_as(target.sharding, source.shape):
        return True
    return cut_by_a_mesh(source) and cut_by_a_mesh(target)


@lru_cache(maxsize=4096)
def _sharding(tiles: Tiles, count: int) -> Sharding | None:
    if tiles.unreduced or any(kind != REPLICAS for _, kind in tiles.groups):
        return None
    if prod(tiles.grid) == 1:
        return WHOLE
    cells = cells_of(tiles, count)
    for sizes in _factors(tiles, count):
        axes = _axes(sizes, cells, tiles.grid)
        if axes is not None:
            return _merged(axes, len(tiles.grid))
    return None


REPLICAS = 0  # OpSharding.REPLICATED


def _factors(tiles: Tiles, count: int) -> Iterator[tuple[int, ...]]:
    """Prime factors of the number of devices, in each order in which they may be the axes of a mesh."""
    yield tuple(prime for dim in tiles.reshape for prime in _primes(dim)) if tiles.reshape else _primes(count)
    yield from dict.fromkeys(islice(permutations(_primes(count)), ORDERS))


def _primes(number: int) -> tuple[int, ...]:
    found, prime = [], 2
    while number > 1:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return tuple(found)


def _axes(sizes: tuple[int, ...], cells: np.ndarray[Any, Any], grid: tuple[int, ...]) -> list[Axis] | None:
    """What each axis of this mesh splits; None if no such mesh has its shards where `cells` says."""
    count, axes = len(cells), []
    strides = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    steps = np.array([cells[stride] for stride in strides])  # one step along each axis, from the first device
    digits = np.stack(np.unravel_index(np.arange(count), sizes), axis=-1)
    if cells[0].any() or (digits @ steps != cells).any():
        return None
    for size, step in zip(sizes, steps, strict=True):
        dims = np.flatnonzero(step)
        if len(dims) > 1:
            return None
        axes.append((size, int(dims[0]), int(step[dims[0]])) if len(dims) else (size, -1, 0))
    for dim, cut in enumerate(grid):
        step = 1
        for size, weight in sorted((weight, size) for size, at, weight in axes if at == dim):
            if size != step:
                return None
            step *= weight
        if step != cut:
            return None
    return axes


def _merged(axes: list[Axis], rank: int) -> Sharding:
    """The same with as few axes as can be: neighbours that split, or copy, as one axis would."""
    found: list[Axis] = []
    for size, dim, step in axes:
        if found:
            last, at, weight = found[-1]
            if at == dim and (dim < 0 or weight == step * size):
                found[-1] = last * size, dim, step
                continue
        found.append((size, dim, step))
    dims = tuple(
        tuple(sorted((at for at, axis in enumerate(found) if axis[1] == dim), key=lambda at: -found[at][2]))
        for dim in range(rank)
    )
    return Sharding(dims, tuple(size for size, _, _ in found))

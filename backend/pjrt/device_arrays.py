"""Converts between contents in host memory and arrays on this process's devices: numpy shards and `jax.Array`s.

A key of `jax.random` is a number of eight bytes in host memory, and a key on devices. Neighbours: `store`, `world`.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib import _jax

from core.model import Index, Layout, Shards

from ..contents import local_shards, shard_io
from ..devices import Array
from .world import WorldMembership

native: Any = _jax
KEPT = 4096  # layouts that are remembered
KEYS = "key<fry>"
KEY_KIND = "threefry2x32"
KEY_WORDS = 2


class Placed(NamedTuple):
    """How a layout lies on this process's devices: worked out once a world, since arrays of a program recur."""

    size: tuple[int, ...]  # of a shard
    own: dict[Index, list[int]]  # distinct shards that this host has, and the numbers of its devices that have each
    sharding: Any
    aval: Any
    devices: list[Any]  # of this process, in JAX's order
    indices: list[Index]  # the shard of each
    firsts: dict[Index, int]  # of each distinct shard: the first of these devices that has it


def placed(world: WorldMembership, layout: Layout) -> Placed:
    cache = world.by_layout  # this world's, should there be another one meanwhile
    found: Placed | None = cache.get(layout)
    if found is None:
        size, own, sharding = Shards(layout).size, own_shards(world, layout), world.sharding(layout)
        where = sharding.addressable_devices_indices_map(layout.shape)
        shard_of = {number: index for index, numbers in own.items() for number in numbers}
        indices = [shard_of[world.number_of(device)] for device in where]
        firsts = {index: indices.index(index) for index in own}
        aval = jax.core.ShapedArray(layout.shape, device_dtype(layout))
        if len(cache) >= KEPT:
            cache.clear()
        found = cache[layout] = Placed(size, own, sharding, aval, list(where), indices, firsts)
    return found


def own_shards(world: WorldMembership, layout: Layout) -> dict[Index, list[int]]:
    """The distinct shards that this host has, and its devices that have each."""
    return local_shards(layout, world.mine)


def to_devices(world: WorldMembership, layout: Layout, shards: Mapping[Index, Array]) -> Any:
    """An array of shards, which may not be written to any more: CPU devices use aligned memory as it is."""
    if layout.dtype == KEYS:
        return _keys_to_devices(world, layout, shards)
    at = placed(world, layout)
    parts = [shards[index] for index in at.indices]
    # a tenth of the time that `device_put` takes, for small arrays
    return native.batched_device_put(at.aval, at.sharding, parts, at.devices, True, enable_x64=True)


def of_shards(world: WorldMembership, layout: Layout, arrays: Mapping[int, Any]) -> Any:
    """An array whose shard on each of this host's devices is that of `arrays` there: no contents are copied."""
    shards: dict[int, dict[Any, Any]] = {}
    for array in arrays.values():
        if id(array) not in shards:
            shards[id(array)] = {part.device: part.data for part in array.addressable_shards}
    found = {world.devices[device]: shards[id(array)] for device, array in arrays.items()}
    sharding, dtype = world.sharding(layout), device_dtype(layout)
    parts = [found[device][device] for device in sharding.addressable_devices_indices_map(layout.shape)]
    if layout.dtype == KEYS:
        return jax.make_array_from_single_device_arrays(layout.shape, sharding, parts, dtype=dtype)
    # Its checks refuse numbers as rows of one, which a stack has.
    aval = jax.core.ShapedArray(layout.shape, dtype)
    return native.ArrayImpl(aval, sharding, parts, committed=True, _skip_checks=True)


def _keys_to_devices(world: WorldMembership, layout: Layout, shards: Mapping[Index, Array]) -> Any:
    parts, homes = [], []
    for index, numbers in own_shards(world, layout).items():
        for number in numbers:
            parts.append(_words(np.asarray(shards[index])))
            homes.append(world.devices[number])
    placed = [jax.random.wrap_key_data(part, impl=KEY_KIND) for part in jax.device_put(parts, homes)]
    sharding = world.sharding(layout)
    return jax.make_array_from_single_device_arrays(layout.shape, sharding, placed, dtype=device_dtype(layout))


def device_dtype(layout: Layout) -> Any:
    return jax.random.key(0).dtype if layout.dtype == KEYS else shard_io.numpy_dtype(layout.dtype)


def to_host(world: WorldMembership, layout: Layout, array: Any, *, copies: bool = False) -> dict[Index, Array]:
    """A host's shards of an array; waits for the array. Without `copies`, the caller may not write to the shards,
    which may be memory of CPU devices."""
    at, found = placed(world, layout), {}
    ordered = array.sharding is at.sharding
    by_number = {} if ordered else {world.number_of(part.device): part.data for part in array.addressable_shards}
    for index, numbers in at.own.items():
        part = array.addressable_data(at.firsts[index]) if ordered else by_number[numbers[0]]
        held = np.asarray(jax.random.key_data(part) if layout.dtype == KEYS else part)
        if layout.dtype == KEYS:
            held = np.ascontiguousarray(held).view(np.uint64)[..., 0]
        if copies:
            room = shard_io.empty(held.shape, layout.dtype)
            room[...] = held
            held = room
        found[index] = held.reshape(at.size) if held.shape != at.size else held  # numbers in a stack
    return found


def of_literal(world: WorldMembership, layout: Layout, literal: bytes) -> Any:
    """An array of which the whole came with a call."""
    dtype = shard_io.numpy_dtype(layout.dtype)
    wanted = math.prod(layout.shape) * dtype.itemsize
    if len(literal) != wanted:
        raise shard_io.ContentsMismatch(
            f"a literal has {len(literal)} bytes, but {layout.dtype}{list(layout.shape)} has {wanted}"
        )
    # it may be donated: `literal` is not ours
    whole = np.frombuffer(literal, dtype).reshape(layout.shape).copy()
    if layout.dtype == KEYS:
        return to_devices(world, layout, shard_io.cut(layout, whole))
    return jax.make_array_from_callback(layout.shape, world.sharding(layout), whole.__getitem__)


def zeros(world: WorldMembership, layout: Layout) -> Any:
    """A placeholder array; its values do not matter."""
    size = Shards(layout).size
    return to_devices(world, layout, {index: _zero(size, layout.dtype) for index in own_shards(world, layout)})


def _zero(size: tuple[int, ...], dtype: str) -> Array:
    room = shard_io.empty(size, dtype)
    room[...] = 0
    return room


def _words(keys: Array) -> Array:
    return np.ascontiguousarray(keys)[..., None].view(np.uint32).reshape(*keys.shape, KEY_WORDS)

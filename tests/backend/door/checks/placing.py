"""Where arrays are: split, replicated, on permuted meshes; their shards; copies from device to device."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from .registry import REMOTE, check, error_of, grid, line, numbers, on, same


def _shardings() -> Iterator[NamedSharding]:
    """Of a matrix: whole, in rows, in columns, in both, in both at once; on meshes in this order and others."""
    count = len(jax.devices())
    orders: list[Any] = [np.arange(count), np.arange(count)[::-1], np.roll(np.arange(count), 1)]
    orders.append(np.arange(count).reshape(-1, 2).T.ravel())
    orders.append(np.random.default_rng(7).permutation(count))
    for order in orders:
        yield from _of_mesh(grid(order))
    yield from _swapped()


def _of_mesh(mesh: Mesh) -> list[NamedSharding]:
    specs: tuple[Any, ...] = (
        (), ("x",), ("y",), (None, "x"), ("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x")),
    )  # fmt: skip
    return [on(mesh, *spec) for spec in specs]


def _swapped() -> list[NamedSharding]:
    swapped = Mesh(np.array(jax.devices()).reshape(-1, 2).T, ("x", "y"))
    return [on(swapped, "x", "y"), on(swapped, "y")]


def _together() -> list[list[NamedSharding]]:
    """Shardings whose devices are in one order, so that one compiled program has arrays in all of them."""
    order = np.random.default_rng(7).permutation(len(jax.devices()))
    return [_of_mesh(grid()), _of_mesh(grid(order)), _swapped()]


def _matrix() -> Any:
    count = len(jax.devices())
    return numbers(2 * count, count)


@check
def put_on_meshes() -> None:
    x = _matrix()
    for sharding in _shardings():
        put = jax.device_put(x, sharding)
        assert put.sharding == sharding
        same(put, x)


@check
def shards_hold_their_part() -> None:
    x = _matrix()
    for sharding in _shardings():
        put = jax.device_put(x, sharding)
        wanted = sharding.devices_indices_map(x.shape)
        assert {shard.device for shard in put.addressable_shards} == set(jax.devices())
        for shard in put.addressable_shards:
            assert shard.index == wanted[shard.device]
            same(shard.data, x[shard.index])
            assert shard.data.devices() == {shard.device}


@check
def computed_on_meshes() -> None:
    x = _matrix()
    twice = jax.jit(lambda xs: [x * 2 for x in xs])
    for shardings in _together():
        made = twice([jax.device_put(x, sharding) for sharding in shardings])
        for found, sharding in zip(made, shardings, strict=True):
            assert found.sharding.is_equivalent_to(sharding, 2)
            same(found, x * 2)


@check
def outputs_where_they_are_asked_for() -> None:
    x = _matrix()
    for shardings in _together():
        here = on(Mesh(shardings[0].mesh.devices, ("a", "b")), "a")
        more = jax.jit(lambda x, count: [x + 1] * count, static_argnums=1, out_shardings=shardings)
        for found, sharding in zip(more(jax.device_put(x, here), len(shardings)), shardings, strict=True):
            assert found.sharding.is_equivalent_to(sharding, 2)
            for shard in found.addressable_shards:
                same(shard.data, (x + 1)[shard.index])


@check
def put_from_one_sharding_into_another() -> None:
    x = _matrix()
    put = jax.device_put(x, on(grid(), "x", "y"))
    for sharding in list(_shardings())[:10]:
        put = jax.device_put(put, sharding)
        assert put.sharding == sharding
        same(put, x)
    same(jax.device_put(put, jax.devices()[-1]), x)
    same(jax.device_put(jax.device_put(x), on(line(), "x")), x)


@check
def copied_from_device_to_device() -> None:
    x = numbers(3, 5)
    here = jax.device_put(x, jax.devices()[0])
    for device in jax.devices():
        there = jax.device_put(here, device)
        assert there.devices() == {device}
        same(there, x)
        same(there + 1, x + 1)
    kept = jax.device_put(here, jax.devices()[1])
    here.delete()
    same(kept, x)
    aside = jax.device_put(jax.device_put(x, on(line())), on(Mesh(np.array(jax.devices())[::-1], ("x",))))
    same(aside, x)


@check
def made_on_the_local_cpu() -> None:
    """Parameters are made there, and used on the devices; JAX decides where, as for devices of one process."""
    here = jax.devices("cpu")[0]
    with jax.default_device(here):
        weights = {"w": jnp.asarray(numbers(8, 8)), "b": jnp.asarray(numbers(8), jnp.bfloat16)}
        local = jax.jit(lambda x: x + 1)(numbers(3)[::-1])
    same(local, numbers(3)[::-1] + 1)
    assert local.devices() == {here}
    step = jax.jit(lambda w, x: {"w": w["w"] + x, "b": w["b"]})
    for x in (jnp.ones((8, 8)), jax.device_put(numbers(8, 8), on(line(), "x"))):
        for _ in range(2):  # the second call takes another way
            moved = step(weights, x)
            same(moved["w"], numbers(8, 8) + np.asarray(x))
            assert moved["w"].devices() == x.devices()
    for sharding in (SingleDeviceSharding(jax.devices()[1]), on(line(), "x"), on(line())):
        put = jax.device_put(weights, sharding)
        same(put["w"], weights["w"])
        assert put["b"].devices() == sharding.device_set


@check
def copied_to_the_local_cpu() -> None:
    here, x = jax.devices("cpu")[0], _matrix()
    for sharding in (jax.devices()[-1], on(line()), on(grid(), "y", "x")):
        for target in (here, on(Mesh(np.array([here]), ("x",)), "x")):
            back = jax.device_put(jax.device_put(x, sharding) * 2, target)
            same(back, x * 2)
            assert back.devices() == {here}
    given = jax.device_put(x, on(line()))
    same(jax.device_put(given, here, donate=True), x)
    used: Any = jax.jit(lambda here, there: here + there)(jax.device_put(x, here), jnp.ones(x.shape))
    same(used, x + 1)
    assert used.devices() == {here}


@check
def made_of_arrays_of_single_devices() -> None:
    x, sharding = _matrix(), on(grid(), "y", "x")
    parts = [jax.device_put(x[index], device) for device, index in sharding.devices_indices_map(x.shape).items()]
    whole = jax.make_array_from_single_device_arrays(x.shape, sharding, parts)
    same(whole, x)
    same(jax.jit(lambda x: x.T)(whole), x.T)
    same(parts[0], x[next(iter(sharding.devices_indices_map(x.shape).values()))])
    shards = [shard.data for shard in jax.device_put(x, sharding).addressable_shards]
    same(jax.make_array_from_single_device_arrays(x.shape, sharding, shards), x)


@check
def made_by_a_callback_for_each_index() -> None:
    x, sharding = _matrix(), on(grid(), ("x", "y"))
    same(jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]), x)
    same(jax.make_array_from_process_local_data(sharding, x), x)
    assert jnp.sum(jax.make_array_from_callback(x.shape, on(grid()), lambda _: x)) == x.sum()


@check
def on_some_of_the_devices() -> None:
    chosen = np.array(jax.devices())[[-1, 0]]
    mesh = Mesh(chosen, ("x",))
    x = numbers(6, 2)
    put = jax.device_put(x, on(mesh, "x"))
    same(jax.jit(lambda x: x @ x.T)(put), x @ x.T)
    assert put.addressable_shards[0].device == chosen[0]
    for device in jax.devices():
        alone = jax.jit(lambda x: x - 1, out_shardings=SingleDeviceSharding(device))(x)
        assert alone.devices() == {device}
        same(alone, x - 1)


@check
def devices_are_as_a_program_expects() -> None:
    devices = jax.devices()
    assert [device.id for device in devices] == list(range(len(devices)))
    assert jax.local_devices() == devices
    assert (jax.process_count(), jax.process_index()) == (1, 0)
    assert len({*devices}) == len(devices)
    assert all(device.default_memory() in device.addressable_memories() for device in devices)
    assert all(device.memory_stats() is None for device in devices)
    mesh = jax.make_mesh((len(devices),), ("x",))
    assert set(mesh.devices.flat) == set(devices)


@check
def resharded_by_one_request() -> None:
    """What pathwaysutils calls, which devices of this process do not know."""
    reshard = importlib.import_module("jaxlib._pathways")._transfer_to_shardings
    if not REMOTE:
        assert "ReshardArrays" in str(error_of(lambda: reshard((jnp.ones(2),), (on(line()),), False)))
        return
    shardings = list(_shardings())
    large = numbers(len(jax.devices()) * 64, 1024)  # 2 MiB on eight devices
    for wanted, few in ((_matrix(), 5), (_matrix().astype(np.int8), 9), (large, 21)):
        for source, target in zip(shardings[::few], shardings[::-few], strict=True):
            given = jax.device_put(wanted, source)
            (found,) = reshard((given,), (target,), False)
            assert found.sharding == target
            parts = target.devices_indices_map(wanted.shape)
            for shard in found.addressable_shards:
                same(shard.data, wanted[parts[shard.device]])
            same(given, wanted)
    given = jax.device_put(large, shardings[1])
    (found,) = reshard((given,), (shardings[2],), True)
    assert given.is_deleted()
    same(found, large)
    half = Mesh(np.array(jax.devices()[: len(jax.devices()) // 2]), ("x",))
    given = jax.device_put(np.ones((), np.float32), on(line()))
    (found,) = reshard((given,), (on(half),), True)
    assert given.is_deleted()
    same(jax.jit(lambda x: x + 1)(found), np.float32(2))
    empty = jax.device_put(np.zeros((0, 8), np.float32), on(line(), None, "x"))
    same(reshard((empty,), (on(line(), "x"),), False)[0], np.zeros((0, 8), np.float32))

"""Collectives, random numbers on meshes, and several programs and threads at once."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from .registry import check, close, grid, line, numbers, on, same


@check
def collectives() -> None:
    mesh, count = line(), len(jax.devices())
    x = numbers(2 * count, 3)

    def mapped(f: Any, out: P) -> Any:
        return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False))(x)

    blocks = x.reshape(count, 2, 3)
    same(mapped(lambda x: lax.psum(x, "x"), P()), blocks.sum(0))
    same(mapped(lambda x: lax.pmax(x, "x"), P()), blocks.max(0))
    same(mapped(lambda x: lax.all_gather(x, "x", tiled=True), P()), x)
    turned = [(each, (each + 1) % count) for each in range(count)]
    same(mapped(lambda x: lax.ppermute(x, "x", turned), P("x")), np.roll(blocks, 1, 0).reshape(x.shape))
    same(mapped(lambda x: lax.axis_index("x")[None], P("x")), np.arange(count, dtype=np.int32))
    scattered = jax.shard_map(
        lambda x: lax.psum_scatter(x, "x", tiled=True), mesh=mesh, in_specs=P(), out_specs=P("x"), check_vma=False
    )
    same(jax.jit(scattered)(numbers(count, 2)), numbers(count, 2) * count)
    swapped = jax.shard_map(
        lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), mesh=mesh, in_specs=P("x"), out_specs=P(None, "x")
    )
    same(jax.jit(swapped)(numbers(count, count)), numbers(count, count))


@check
def sums_that_are_still_to_be_made() -> None:
    """Each device has a part of the sum, of an array and of a single number."""
    jax_now: Any = jax
    kinds = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((len(jax.devices()),), ("x",), axis_types=kinds)
    x = numbers(2 * len(jax.devices()), 3)
    with jax_now.set_mesh(mesh):
        there = jax.device_put(x, P("x", None))
        for axes in ([0], [0, 1]):
            later: Any = P(unreduced={"x"})
            parts = lax.reduce_sum(there, axes, out_sharding=later)
            assert "nreduced" in str(parts.sharding)
            same(jax_now.reshard(parts, P()), x.sum(tuple(axes)))
            same(jax_now.reshard(parts + parts, P()), 2 * x.sum(tuple(axes)))


@check
def collectives_on_a_permuted_grid() -> None:
    count = len(jax.devices())
    mesh = grid(np.random.default_rng(5).permutation(count))
    x = numbers(count, 4)
    f = jax.shard_map(lambda x: lax.psum(x.sum(0), ("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P())
    same(jax.jit(f)(jax.device_put(x, on(mesh, ("x", "y")))), x.sum(0))
    rows = jax.shard_map(lambda x: lax.pmean(x, "y"), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x"))
    close(jax.jit(rows)(x), x.reshape(count, 2, 2).mean(1))
    loop = jax.shard_map(
        lambda x: lax.scan(lambda c, _: (lax.pmean(c, "x") + 1, None), x, None, length=4)[0],
        mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False,
    )  # fmt: skip
    close(jax.jit(loop)(x), np.broadcast_to(x.reshape(-1, 2, 4).mean(0) + 4, (count // 2, 2, 4)).reshape(x.shape))


@check
def random_numbers_on_meshes() -> None:
    key = jax.random.key(3)
    wanted = np.asarray(jax.random.normal(key, (16, 8)))
    assert len(np.unique(wanted)) == wanted.size
    drawn = jax.jit(lambda key: jax.random.normal(key, (16, 8)), out_shardings=on(grid(), "x", "y"))(key)
    close(drawn, wanted)
    bits = jax.jit(lambda key: jax.random.bits(key, (16, 8)), out_shardings=on(grid(), "x", "y"))(key)
    same(bits, jax.random.bits(key, (16, 8)))
    keys = jax.device_put(jax.random.split(key, len(jax.devices())), on(line(), "x"))
    each = jax.jit(jax.vmap(lambda key: jax.random.uniform(key, (2,))))(keys)
    assert len(np.unique(np.asarray(each))) == 2 * len(jax.devices())
    same(jax.random.permutation(key, 9).sort(), np.arange(9, dtype=np.int32))


@check
def two_programs_in_turns() -> None:
    """One on a mesh with a collective, one on a device, with nothing read in between."""
    mesh = line()
    total = jax.jit(jax.shard_map(lambda x: x + lax.psum(x, "x") * 0 + 1, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    single = jax.jit(lambda x: x * 1 + 2)
    x, y = jax.device_put(numbers(16), on(mesh, "x")), jnp.zeros(3)
    for _ in range(100):
        x, y = total(x), single(y)
    same(x, numbers(16) + 100)
    same(y, np.full(3, 200, np.float32))


@check
def several_threads() -> None:
    """Each puts, compiles, calls and reads; some of it on all devices."""
    failed: list[BaseException] = []
    mesh = grid()

    def work(number: int) -> None:
        try:
            f = jax.jit(lambda x: x * 2 + number)
            for turn in range(10):
                x = numbers(8, 2) + turn
                put = jax.device_put(x, on(mesh, "x") if (number + turn) % 2 else jax.devices()[0])
                same(f(f(put)), (x * 2 + number) * 2 + number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@check
def many_calls_ahead() -> None:
    """Hundreds of calls on all devices before anything is read."""
    mesh = line()
    step = jax.jit(lambda x, y: (x @ y / 64, y))
    x = jax.device_put(np.ones((64, 64), np.float32), on(mesh, "x"))
    y = jax.device_put(np.ones((64, 64), np.float32), on(mesh))
    for _ in range(300):
        x, y = step(x, y)
    close(x, np.ones((64, 64)))

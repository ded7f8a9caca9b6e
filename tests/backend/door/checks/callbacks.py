"""Functions of this process that compiled programs call: their results, their order, their errors."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import io_callback
from jax.sharding import PartitionSpec

from .registry import REMOTE, check, error_of, line, numbers, on, same

SCALAR = jax.ShapeDtypeStruct((), np.float32)


def like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def doubled(x: Any) -> Any:
    return jax.pure_callback(lambda x: np.asarray(x) * 2, like(x), x, vmap_method="sequential")


@check
def callbacks_return_what_they_computed() -> None:
    same(jax.jit(lambda x: doubled(x) + 1)(numbers(4)), numbers(4) * 2 + 1)
    same(jax.jit(jax.vmap(doubled))(numbers(3, 2)), numbers(3, 2) * 2)
    same(jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: doubled(x), x))(numbers(2)), numbers(2) * 8)
    for dtype in (np.int8, np.bool_, ml_dtypes.bfloat16, np.complex64, np.uint32):
        x = np.asarray([1, 0, 1], dtype)
        same(jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x), like(x), x))(x), x)
    same(jax.pure_callback(lambda x: np.float32(x + 1), SCALAR, jnp.float32(1)), np.float32(2))  # outside of jit

    def several(x: Any) -> Any:
        return jax.pure_callback(lambda x: {"a": np.float32(x.sum()), "b": x[:0]}, {"a": SCALAR, "b": like(x[:0])}, x)

    found = jax.jit(several)(numbers(3))
    same(found["a"], np.float32(3))
    same(found["b"], numbers(0))


@check
def effects_are_seen_and_those_in_order_in_order() -> None:
    seen: list[float] = []
    ordered: list[float] = []

    def more(x: Any) -> Any:
        ordered.append(float(x))
        return np.float32(x + 1)

    @jax.jit
    def f(x: Any) -> Any:
        jax.debug.callback(lambda x: seen.append(float(x)), x)
        for each in range(3):
            x = io_callback(more, SCALAR, x + each, ordered=True)
        return x

    values = [float(f(np.float32(10 * each))) for each in range(3)]
    jax.effects_barrier()
    assert values == [6.0, 16.0, 26.0], values
    assert sorted(seen) == [0.0, 10.0, 20.0], seen
    assert ordered == [0.0, 2.0, 5.0, 10.0, 12.0, 15.0, 20.0, 22.0, 25.0], ordered


@check
def callbacks_on_a_mesh_are_called_once_or_for_each_shard() -> None:
    mesh, calls, shards = line(), list[Any](), list[Any]()
    x = jax.device_put(numbers(16), on(mesh, "x"))

    def more(x: Any) -> Any:
        calls.append(x.shape)
        return np.asarray(x) + 1

    @jax.jit
    def once(x: Any) -> Any:
        return jax.pure_callback(more, like(x), x)

    @jax.jit
    def each(x: Any) -> Any:
        def part(x: Any) -> Any:
            jax.debug.callback(lambda x: shards.append(float(x[0])), x)
            return doubled(x)

        return jax.shard_map(part, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))(x)

    same(once(x), numbers(16) + 1)
    assert set(calls) == {(16,)}, calls
    same(each(x), numbers(16) * 2)
    jax.effects_barrier()
    assert sorted(shards) == numbers(16)[:: 16 // len(jax.devices())].tolist(), shards


@check
def errors_of_callbacks_are_raised_and_the_rest_goes_on() -> None:
    def refuse(x: Any) -> Any:
        raise ValueError(f"no room for {float(np.sum(x))}")

    def failing(x: Any) -> Any:
        return jnp.sum(jax.pure_callback(refuse, like(x), x))

    several = [jax.device_put(numbers(8), on(line(), "x"))] if REMOTE else []  # on its own devices, JAX aborts
    for x in (numbers(8), *several):
        text = str(error_of(lambda x=x: float(jax.jit(failing)(x))))  # type: ignore[misc]
        assert "ValueError: no room for 28.0" in text, text
        same(jax.jit(doubled)(x), numbers(8) * 2)
    wrong = jax.jit(lambda x: jax.pure_callback(lambda x: x[:1], like(x), x))
    assert "Incorrect output shape" in (text := str(error_of(lambda: np.asarray(wrong(numbers(2)))))), text

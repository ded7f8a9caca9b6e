"""Contents of arrays: there and back, in every dtype and size, from any layout in memory; readiness, and deletion."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from .registry import check, error_of, grid, line, numbers, on, same

WHOLE = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = ("float16", "bfloat16", "float32", "complex64")
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
LESS_THAN_A_BYTE = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
WIDE = ("int64", "uint64", "float64", "complex128")


def _there_and_back(dtypes: Iterable[np.dtype[Any]]) -> None:
    """All of them in two programs, since each program costs a compilation."""
    xs = [
        numbers(2, 3) % 2 == 0 if dtype == np.dtype("bool") else (numbers(2, 3) % 2).astype(dtype) for dtype in dtypes
    ]
    put = [jax.device_put(x) for x in xs]
    turned = jax.jit(lambda xs: [x.T for x in xs])(xs)  # as arguments of a call
    both = jax.jit(lambda xs: [(x, x.astype(jnp.float32)) for x in xs])(put)
    for x, there, across, (_, converted) in zip(xs, put, turned, both, strict=True):
        assert there.dtype == x.dtype
        same(there, x)
        same(across, x.T)
        same(converted, x.real.astype(np.float32))


@check
def dtypes() -> None:
    _there_and_back(jnp.dtype(name) for name in (*WHOLE, *FLOATS))


@check
def dtypes_of_64_bits() -> None:
    with jax.enable_x64(True):
        _there_and_back(np.dtype(name) for name in WIDE)


@check
def dtypes_of_8_bits_and_less() -> None:
    _there_and_back(np.dtype(getattr(ml_dtypes, name)) for name in (*EIGHT_BITS, *LESS_THAN_A_BYTE))


@check
def scalars() -> None:
    assert float(jax.jit(lambda x: x + 1)(2.5)) == 3.5
    assert int(jax.jit(lambda x: x * 2)(21)) == 42
    assert bool(jax.jit(lambda x: ~x)(False))
    assert complex(jax.jit(jnp.conj)(1 + 2j)) == 1 - 2j
    same(jnp.float32(1.5) + 1, np.float32(2.5))
    assert (jnp.bfloat16(3) * 2).item() == 6.0
    assert jnp.arange(3)[1].item() == 1
    assert float(jnp.float32(np.nan)) != float(jnp.float32(np.nan))


@check
def not_contiguous_in_memory() -> None:
    x = numbers(4, 12)
    views = [numbers(6, 4).T, x[:, ::2], x[:, 2:8], np.asfortranarray(x[:, :6])]
    views += [x[::-1, :6], x[:, ::-2], np.broadcast_to(x[0, :6], (4, 6)), np.broadcast_to(x[:, :1], (4, 6))]
    add, rows = jax.jit(lambda x: x + 1), on(grid(), "y")
    split = jax.jit(lambda x: x * 2, in_shardings=rows)
    for view in views:
        same(jnp.asarray(view), view)
        for _ in range(2):  # the second call takes another way
            same(add(view), view + 1)
            same(split(view), view * 2)
        for sharding in (None, rows, on(line())):
            same(jax.device_put(view, sharding), view)
        same(jax.make_array_from_callback(view.shape, rows, lambda index, view=view: view[index]), view)  # type: ignore[misc]


@check
def through_dlpack() -> None:
    x = numbers(3, 4)
    same(np.from_dlpack(jax.device_put(x)), x)
    same(jnp.from_dlpack(x), x)


@check
def without_bytes() -> None:
    for shape in ((0,), (3, 0, 2)):
        x = np.zeros(shape, np.float32)
        same(jax.device_put(x), x)
        same(jax.device_put(x, on(line())), x)
        same(jax.jit(lambda x: x * 2)(x), x)
        same(jax.jit(lambda x: jnp.concatenate([x, x]))(x), np.concatenate([x, x]))
    same(jax.jit(jnp.sum)(np.zeros((0,), np.float32)), np.float32(0))


@check
def large_arrays_each_way() -> None:
    x = numbers(1 << 22)  # 16 MiB, several messages
    same(jax.device_put(x), x)
    same(jax.device_put(x, on(line(), "x")), x)
    same(jax.jit(lambda x: x + 1)(x), x + 1)
    odd = numbers(5_000_011, dtype=np.int32)  # 19 MiB, and no multiple of a message
    same(jax.device_put(odd, on(line())), odd)
    same(jax.jit(lambda x: x[::-1])(odd), odd[::-1])


@check
def a_thousand_small_puts() -> None:
    put = [jax.device_put(np.int32(each)) for each in range(1_000)]
    assert [int(each) for each in put[::5]] == list(range(0, 1_000, 5))
    # more than a server of gRPC takes at a time
    four = jax.device_put([np.float32(each) for each in range(4_000)])
    assert sum(float(each) for each in four[::400]) == sum(range(0, 4_000, 400))


@check
def ready_when_it_was_waited_for() -> None:
    x = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: jnp.tanh(y @ y), x))(np.eye(64, dtype=np.float32))
    assert jax.block_until_ready(x) is x
    assert x.is_ready()
    tree = {"a": x + 1, "b": [x * 2, np.float32(1)]}
    jax.block_until_ready(tree)
    while not tree["a"].is_ready():  # the client asks the door, and says "not yet" meanwhile
        pass


@check
def deleted_arrays() -> None:
    x = jax.device_put(numbers(4), on(line()))
    y = x + 1
    x.delete()
    assert x.is_deleted()
    assert "deleted" in str(error_of(lambda: x + 1))
    same(y, numbers(4) + 1)
    for _ in range(200):  # the last reference, not `delete()`
        y = y + 1
    same(y, numbers(4) + 201)


@check
def reading_twice_and_in_parts() -> None:
    x = jax.device_put(numbers(8, 4), on(line(), None, None))
    same(x, numbers(8, 4))
    same(x, numbers(8, 4))
    same(x[3], numbers(8, 4)[3])
    same(np.stack(list(x)), numbers(8, 4))
    copied = jnp.array(x)
    same(jax.device_get([x, copied])[1], numbers(8, 4))

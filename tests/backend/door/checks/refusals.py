"""Errors: their texts, that they follow from array to array, and what cannot work on devices of another process."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import serialize_executable

from .registry import REMOTE, check, error_of, line, numbers, on, same

TOO_LARGE = 1 << 50  # bytes: more than any machine can promise


def _exhausting(x: Any) -> Any:
    """A computation that needs more memory than there is, which only running it tells."""
    return jnp.broadcast_to(x, (TOO_LARGE // 4,))[::-1] + jnp.arange(TOO_LARGE // 4, dtype=jnp.int32)


@check
def errors_of_tracing_stay_as_they_are() -> None:
    x = jnp.ones((2, 3))
    assert "dot_general" in str(error_of(lambda: x @ x))
    assert isinstance(error_of(lambda: jax.jit(lambda x: x if x > 0 else -x)(1.0)), jax.errors.ConcretizationTypeError)
    assert "divide the shape" in (text := str(error_of(lambda: jax.device_put(numbers(3), on(line(), "x"))))), text


@check
def errors_of_the_compiler_keep_their_text() -> None:
    call = jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((2,), np.float32))
    text = str(error_of(lambda: jax.block_until_ready(jax.jit(call)(np.ones(2, np.float32)))))
    assert "no_such_target" in text, text
    same(jnp.ones(2) + 1, np.full(2, 2, np.float32))  # and the rest goes on


@check
def errors_of_running_follow_what_they_spoilt() -> None:
    f, g = jax.jit(_exhausting), jax.jit(lambda x: x[:3] * 2)

    def chain() -> None:
        spoilt = f(jnp.int32(1))
        np.asarray(g(g(spoilt)))

    for _ in range(2):  # a second call is not waited for
        error = error_of(chain)
        assert isinstance(error, jax.errors.JaxRuntimeError)
        assert "memory" in str(error), str(error)
    good = jnp.ones(3)
    assert float(jnp.sum(good)) == 3.0
    same(g(good), np.full(3, 2, np.float32))


@check
def values_that_are_not_numbers_are_no_errors() -> None:
    same(jnp.log(jnp.float32(0)), np.float32(-np.inf))
    assert np.isnan(float(jnp.float32(0) / 0))
    with jax.debug_nans(True):
        assert isinstance(error_of(lambda: jnp.log(jnp.float32(-1))), FloatingPointError)


@check
def pointers() -> None:
    """An array has an address in this process, or there is an error that says why not."""
    x = jax.block_until_ready(jnp.ones(4))
    if REMOTE:
        assert "np.asarray(array)" in str(error_of(lambda: x.unsafe_buffer_pointer()))
    else:
        assert x.unsafe_buffer_pointer() > 0
    same(np.asarray(x), np.ones(4, np.float32))


@check
def executables_as_files() -> None:
    compiled = jax.jit(lambda x: x * 2).lower(np.float32(1)).compile()
    if REMOTE:
        assert "jax.export" in str(error_of(lambda: serialize_executable.serialize(compiled)))
    else:
        assert serialize_executable.serialize(compiled)
    exported: Any = export.export(jax.jit(lambda x: x * 2))(np.float32(1))
    same(export.deserialize(exported.serialize()).call(np.float32(2)), np.float32(4))


@check
def custom_calls_that_only_tools_need() -> None:
    """Code that inspects shardings asks for a function of the program's process."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        return x + 1

    x = jax.device_put(numbers(16), on(line(), "x"))
    if REMOTE:
        assert str(error_of(lambda: jax.jit(f)(x)))
    else:
        jax.jit(f)(x)
        assert seen
    same(jax.jit(lambda x: x + 1)(x), numbers(16) + 1)

"""Computations: compiled, called, donated to, differentiated; many arguments and results; what the compiler says."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import core, dispatch, effects
from jax._src.interpreters import mlir

from .registry import check, close, error_of, grid, line, numbers, on, same


@check
def on_one_device() -> None:
    f = jax.jit(lambda x, y: (x @ y, x.sum()))
    x, y = numbers(3, 4), numbers(4, 2)
    product, total = f(x, y)
    same(product, x @ y)
    same(total, x.sum())
    same(f(product @ y.T, y)[0], x @ y @ y.T @ y)
    same(f(numbers(5, 4), y)[0], numbers(5, 4) @ y)  # other shapes: compiled again


@check
def on_all_devices() -> None:
    mesh = grid()
    x, y = numbers(16, 8), numbers(8, 4)
    f = jax.jit(lambda x, y: jnp.tanh(x @ y / 1000).sum())
    close(f(jax.device_put(x, on(mesh, "x", "y")), jax.device_put(y, on(mesh, "y"))), np.tanh(x @ y / 1000).sum())
    step = jax.jit(lambda x: x + 1)
    z = jax.device_put(x, on(mesh, "x"))
    for _ in range(20):
        z = step(z)
    same(z, x + 20)


@check
def ordered_effects_pass_tokens() -> None:
    """On one device and on all of them; JAX waits for the last token when the program ends, and here."""
    tick, effect = _effect()
    for sharding in (None, on(line(), "x")):
        f, x = jax.jit(lambda x: (tick.bind(), x + 1)[1]), jax.device_put(numbers(16), sharding)
        for _ in range(3):
            x = f(x)
        same(x, numbers(16) + 3)
    jax.jit(lambda x: (tick.bind(), ())[1])(numbers(2))
    assert effect in dispatch.runtime_tokens.current_tokens
    jax.effects_barrier()


def _effect() -> tuple[Any, Any]:
    """A primitive that does nothing, in an order."""

    class Tick(effects.Effect):
        pass

    for kinds in (effects.lowerable_effects, effects.ordered_effects, effects.shardable_ordered_effects):
        kinds.add_type(Tick)
    effect, primitive = Tick(), core.Primitive("tick")
    primitive.multiple_results = True
    primitive.def_effectful_abstract_eval(lambda: ([], {effect}))

    def lowered(context: Any) -> list[Any]:
        context.set_tokens_out(mlir.TokenSet({effect: context.tokens_in.get(effect)}))
        return []

    mlir.register_lowering(primitive, lowered)
    return primitive, effect


@check
def in_a_loop() -> None:
    step, x = jax.jit(lambda x: x + 1), jnp.int32(0)
    for _ in range(1_000):
        x = step(x)
    assert int(x) == 1_000


@check
def donated_arguments() -> None:
    for sharding in (None, on(grid(), "x")):
        x = jax.device_put(numbers(16, 8), sharding)
        before = np.asarray(x).copy()
        y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
        assert x.is_deleted()
        assert "deleted" in str(error_of(lambda x=x: x + 1))  # type: ignore[misc]
        same(y, before + 1)
        for _ in range(10):
            y = jax.jit(lambda x: x + 1, donate_argnums=0)(y)
        same(y, before + 11)


@check
def donated_arguments_that_others_need() -> None:
    """An argument is used by a call that comes before its donation; another is given away and kept at once."""
    x = jax.device_put(numbers(64, 64) / 5000)
    slow = jax.jit(lambda x: lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y @ x), x))
    wanted = np.asarray(slow(x)).copy()
    first = slow(x)
    second = jax.jit(lambda x: x * 0, donate_argnums=0)(x)
    same(first, wanted)
    same(second, np.zeros((64, 64), np.float32))
    y = jax.device_put(numbers(8))
    kept = np.asarray(y)  # an array's contents in this process are read before the array is given away
    z = jax.jit(lambda y: y + 1, donate_argnums=0)(y)
    same(z, numbers(8) + 1)
    same(kept, numbers(8))
    w = jax.device_put(numbers(8))
    said = str(error_of(lambda: jax.block_until_ready(jax.jit(lambda a, b: a + b, donate_argnums=0)(w, w))))
    assert "donated" in said or "deleted" in said, said


@check
def many_results_and_unused_ones() -> None:
    f = jax.jit(lambda x: [x + each for each in range(60)])
    same(f(numbers(4))[59], numbers(4) + 59)
    for _ in range(5):
        f(numbers(4))  # nobody keeps these
    first, *_ = f(numbers(4))
    same(first, numbers(4))
    x = jnp.ones(3)
    same(jax.jit(lambda x: (x, x, x * 2))(x)[1], np.ones(3, np.float32))  # an argument, twice
    assert jax.jit(lambda x: None)(x) is None
    assert jax.jit(lambda x: {"a": (), "b": [x]})(x)["b"][0].shape == (3,)


@check
def fifty_and_five_hundred_arguments() -> None:
    for count in (50, 500):
        xs = [jax.device_put(np.full(3, each, np.float32)) for each in range(count)]
        f = jax.jit(lambda xs: [x + 1 for x in xs])
        for _ in range(3):
            xs = f(xs)
        assert [float(x[0]) for x in xs[:: count // 10]] == [each + 3.0 for each in range(0, count, count // 10)]
        same(jax.jit(lambda xs: sum(xs))(xs), np.full(3, sum(range(count)) + 3 * count, np.float32))
    x = jnp.float32(2)
    same(jax.jit(lambda *xs: sum(xs))(*[x] * 50), np.float32(100))  # one array, fifty times


@check
def control_flow() -> None:
    x = numbers(5)
    last, sums = jax.jit(lambda x: lax.scan(lambda c, y: (c + y, c + y), 0.0, x))(x)
    same(sums, np.cumsum(x))
    same(last, x.sum())
    same(jax.jit(lambda n: lax.while_loop(lambda v: v < n, lambda v: v * 2, 1))(1000), np.int32(1024))
    f = jax.jit(lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x - 1, x))
    same(f(True, x), x + 1)
    same(f(False, x), x - 1)
    choose = jax.jit(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.exp], x))
    close(choose(1, x), np.cos(x))
    same(lax.fori_loop(0, 10, lambda i, c: c + i, jnp.int32(0)), np.int32(45))


@check
def linear_algebra() -> None:
    x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    square = x.T @ x + np.eye(4, dtype=np.float32)
    u, s, v = jnp.linalg.svd(x, full_matrices=False)
    close(u * s @ v, x, 1e-4)
    values, vectors = jnp.linalg.eigh(square)
    close(vectors * values @ vectors.T, square, 1e-4)
    q, r = jax.jit(jnp.linalg.qr)(x)
    close(q @ r, x, 1e-4)
    close(jnp.linalg.solve(square, np.ones(4, np.float32)), np.linalg.solve(square, np.ones(4)), 1e-3)
    close(jnp.linalg.cholesky(square), np.linalg.cholesky(square), 1e-4)
    close(jnp.linalg.inv(square) @ square, np.eye(4), 1e-3)
    q, r, order = jax.scipy.linalg.qr(x, mode="economic", pivoting=True)
    close(q @ r, x[:, order], 1e-3)
    of_qr = jax.lax.linalg.SvdAlgorithm.QR
    u, s, v = jax.jit(lambda x: jax.lax.linalg.svd(x, full_matrices=False, algorithm=of_qr))(x)
    close((u * s) @ v, x, 1e-3)
    close(jnp.abs(jnp.fft.fft(x[:, 0])), np.abs(np.fft.fft(x[:, 0])), 1e-4)


@check
def what_the_compiler_says() -> None:
    x = jax.device_put(numbers(16, 16), on(line(), "x"))
    lowered: Any = jax.jit(lambda x: jnp.sin(x @ x.T)).lower(x)
    compiled: Any = lowered.compile()
    assert "stablehlo" in lowered.as_text()
    assert lowered.cost_analysis()["flops"] > 0
    assert "HloModule" in compiled.as_text()
    costs = compiled.cost_analysis()
    assert costs["flops"] > 0
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 16 * 16 * 4 // len(jax.devices())
    assert compiled.output_shardings.num_devices == len(jax.devices())
    close(compiled(x), np.sin(numbers(16, 16) @ numbers(16, 16).T), 1e-2)


@check
def large_constants() -> None:
    table = np.random.default_rng(3).normal(size=(1 << 18,)).astype(np.float32)
    same(jax.jit(lambda x: x + table)(np.zeros_like(table)), table)

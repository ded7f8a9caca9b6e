"""Writes the MPMD programs that the tests use, with Shardy's own front end: `two_stages.mlir` and `pipeline.mlir`.

    python tests/backend/door/mpmd/capture_programs.py CHECKOUT

CHECKOUT is a checkout of github.com/openxla/shardy, whose front end is on no package index. It needs JAX 0.12 and the
packages immutabledict and jaxtyping, and neither a door nor devices but CPUs. The programs are in MLIR's generic form,
which jaxlib 0.10 reads, too. `mpmd_client` runs them, and has the same functions for plain JAX to compare with.
"""

# mypy: disable-error-code="no-untyped-call, import-not-found"

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
HERE = Path(__file__).parent
sys.path[:0] = [sys.argv[1], str(HERE)]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jaxlib  # noqa: E402
import jaxlib._jax  # noqa: E402
import jaxlib.mlir.ir  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from mpmd_client import MICRO_BATCHES, PIPELINE, RATE, STAGES, TWO_STAGES, arguments_of  # noqa: E402

# names by which the wheel's module and the front end look for jaxlib
sys.modules |= {"jax.jaxlib": jaxlib, "jax.jaxlib._jax": jaxlib._jax, "mlir": jaxlib.mlir, "mlir.ir": jaxlib.mlir.ir}
jax.config.update("jax_legacy_prng_key", "allow")

from shardy.integrations.python.jax import mpmd  # noqa: E402

P = PartitionSpec


def named(function: Any, name: str) -> Any:
    return mpmd.named_computation(function, name=name)


def update(w: Any, slope: Any) -> Any:
    return w - RATE * slope


def two_stages() -> Any:
    """Two meshes of 2 x 2 devices. Weights are donated."""
    devices = np.array(jax.devices()).reshape(2, 2, 2)
    a, b = (Mesh(each, ("data", "model")) for each in devices)

    def loss(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        h = named(lambda w, x: jnp.tanh(x @ w), "first")(w1, x)
        return named(lambda w, h, y: jnp.mean((h @ w - y) ** 2), "second")(w2, h, y)

    def train(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        found, (s1, s2) = jax.value_and_grad(loss, argnums=(0, 1))(w1, w2, x, y)
        return found, named(update, "update1")(w1, s1), named(update, "update2")(w2, s2)

    where = {"first": "a", "second": "b", "update1": "a", "update2": "b"}
    shardings = (
        NamedSharding(a, P(None, "model")), NamedSharding(b, P("model")), NamedSharding(a, P("data")),
        NamedSharding(b, P("data")),
    )  # fmt: skip
    config = mpmd.make_config({"a": a, "b": b}, where)
    return mpmd.jit(train, config, in_shardings=shardings, donate_argnums=(0, 1)).lower(*arguments_of(TWO_STAGES))


def pipeline() -> Any:
    """Four stages of two devices each, and micro-batches."""
    devices = np.array(jax.devices()).reshape(4, 2)
    meshes = {name: Mesh(each, ("x",)) for name, each in zip("abcd", devices, strict=True)}

    def forward(ws: Any, x: Any) -> Any:
        for at, w in enumerate(ws):
            x = named(lambda w, x: jnp.tanh(x @ w), f"stage{at}")(w, x)
        return named(lambda x: jnp.mean(x * x), "loss")(x)

    def train(*given: Any) -> Any:
        ws, xs = list(given[:STAGES]), given[STAGES:]

        def loss(ws: Any) -> Any:
            return sum(mpmd.call(forward, call_counter=at)(ws, xs[at]) for at in range(MICRO_BATCHES))

        found, slopes = jax.value_and_grad(loss)(ws)
        return found, *(named(update, f"update{at}")(w, slopes[at]) for at, w in enumerate(ws))

    where = {f"{what}{at}": name for at, name in enumerate("abcd") for what in ("stage", "update")} | {"loss": "d"}
    weights = [NamedSharding(mesh, P(None, "x")) for mesh in meshes.values()]
    inputs = [NamedSharding(meshes["a"], P("x"))] * MICRO_BATCHES
    jitted = mpmd.jit(
        train, mpmd.make_config(meshes, where), in_shardings=(*weights, *inputs), donate_argnums=tuple(range(STAGES))
    )
    return jitted.lower(*arguments_of(PIPELINE))


for program, name in ((two_stages, TWO_STAGES), (pipeline, PIPELINE)):
    module = program().compiler_ir("ifrt")
    (HERE / f"{name}.mlir").write_text(module.operation.get_asm(print_generic_op_form=True), encoding="utf-8")

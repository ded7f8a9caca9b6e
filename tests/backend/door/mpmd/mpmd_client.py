"""A JAX program with steps of several stages, as Shardy's front end would run it: with jaxlib's own functions.

    python mpmd_client.py STEPS NAME ...      NAME.mlir is beside this file

It prints a line for each step: the loss, whether all is what plain JAX computes on this process's CPU, and whether the
weights that it gave away are gone; then how many stages there are, as far as they have costs and memory. With "shapes"
behind the names it reads nothing. `capture_programs` made the programs.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

TWO_STAGES, PIPELINE = "two_stages", "pipeline"
STAGES, MICRO_BATCHES, RATE = 4, 8, 0.1
LOADS = """module { func.func public @main(%a: !mpmd.mesh_tensor<"m", tensor<f32>>)
-> !mpmd.mesh_tensor<"m", tensor<f32>> attributes {topology = #mpmd.topology<<"m" : <["x"=1]>>>}
{ return %a : !mpmd.mesh_tensor<"m", tensor<f32>> } }"""


def arguments_of(name: str) -> list[np.ndarray[Any, Any]]:
    """The weights first, of which as many as there are stages."""
    shapes = [(8, 16), (16, 4), (8, 8), (8, 4)]
    if name == PIPELINE:
        shapes = [(16, 16)] * STAGES + [(8, 16)] * MICRO_BATCHES
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def plain(name: str, *given: Any) -> Any:
    """The same step without stages: the loss, and the new weights."""
    import jax
    import jax.numpy as jnp

    def loss(ws: Any) -> Any:
        if name == TWO_STAGES:
            return jnp.mean((jnp.tanh(given[2] @ ws[0]) @ ws[1] - given[3]) ** 2)
        total: Any = 0.0
        for x in given[STAGES:]:
            for w in ws:
                x = jnp.tanh(x @ w)
            total += jnp.mean(x * x)
        return total

    weights = given[: STAGES if name == PIPELINE else 2]
    found, slopes = jax.value_and_grad(loss)(weights)
    return found, *(w - RATE * slope for w, slope in zip(weights, slopes, strict=True))


@contextmanager
def shardy() -> Iterator[tuple[Any, Any]]:
    """jaxlib's module for MPMD programs, and its `ir` in a context that knows the IFRT dialect."""
    native, jaxlib = importlib.import_module("jaxlib._jax"), importlib.import_module("jaxlib")
    sys.modules |= {"jax.jaxlib": jaxlib, "jax.jaxlib._jax": native}
    sys.modules.setdefault("jaxlib.mlir.dialects.ifrt", ModuleType("ifrt"))  # or MLIR looks for it again and again
    found: Any = importlib.import_module("jaxlib._sdy_mpmd")
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    with importlib.import_module("jax._src.interpreters.mlir").make_ir_context(), ir.Location.unknown():
        found.lower_to_ifrt(ir.Module.parse(LOADS))
        yield found, ir


def text_of(name: str) -> str:
    return Path(__file__).with_name(f"{name}.mlir").read_text(encoding="utf-8")


def compiled(text: str, devices: Any, avals: Any, shardings: Any) -> Any:
    """`avals`, `shardings`: of the results."""
    with shardy() as (mpmd, ir):
        module = ir.Module.parse(text)
        return mpmd.compile_mpmd(
            backend=devices[0].client, ifrt_mlir_module=module, devices=devices, out_avals=avals,
            out_shardings=shardings, xla_compile_options=mpmd.get_compile_options(module, {}),
        )  # fmt: skip


class Step:
    """One of the programs, compiled for these devices."""

    def __init__(self, name: str, devices: Any) -> None:
        import jax

        self.name, self.arguments = name, arguments_of(name)
        self.weights = STAGES if name == PIPELINE else 2

        def on(row: Any, *spec: Any) -> Any:
            axes = ("x",) if name == PIPELINE else ("data", "model")
            return jax.sharding.NamedSharding(jax.sharding.Mesh(row, axes), jax.sharding.PartitionSpec(*spec))

        if name == PIPELINE:
            rows = np.array(devices).reshape(4, 2)
            self.shardings = [on(row, None, "x") for row in rows] + [on(rows[0], "x")] * MICRO_BATCHES
            out = [on(rows[-1]), *self.shardings[:STAGES]]
        else:
            a, b = np.array(devices).reshape(2, 2, 2)
            self.shardings = [on(a, None, "model"), on(b, "model"), on(a, "data"), on(b, "data")]
            out = [on(b), *self.shardings[:2]]
        avals = [jax.core.ShapedArray((), np.dtype(np.float32))] + [
            jax.core.ShapedArray(each.shape, each.dtype) for each in self.arguments[: self.weights]
        ]
        self.compiled = compiled(text_of(name), devices, avals, out)

    def put(self) -> list[Any]:
        import jax

        return [jax.device_put(each, where) for each, where in zip(self.arguments, self.shardings, strict=True)]

    def __call__(self, given: list[Any]) -> list[Any]:
        """The loss, and what to give the next time."""
        loss, *weights = self.compiled.execute(given)
        return [loss, *weights, *given[self.weights :]]


def main(steps: int, name: str, shapes: bool) -> None:
    import jax

    step = Step(name, jax.devices())
    given, here = step.put(), step.arguments
    with jax.default_device(jax.devices("cpu")[0]):
        reference = jax.jit(lambda *given: plain(name, *given))
    for _ in range(steps):
        before = given[: step.weights]
        loss, *given = step(given)
        if shapes:
            jax.block_until_ready(given)
            continue
        wanted, *weights = reference(*here)
        here = [*map(np.asarray, weights), *here[step.weights :]]
        same = all(np.allclose(a, b, atol=1e-5) for a, b in zip((loss, *given), (wanted, *here), strict=True))
        print(f"{name} {float(loss):.4f} {same} {all(each.is_deleted() for each in before)}")
    print(name, len(step.compiled.get_compiled_memory_stats()), len(step.compiled.cost_analysis()))


def reshard(devices: Any) -> None:
    """An array of four devices, by rows, becomes one of four others, by rows and columns."""
    import jax

    here, there = (
        "#ifrt.sharding_param<4x1 to [0] on 4>, [0, 1, 2, 3]",
        "#ifrt.sharding_param<2x2 to [1, 0] on 2x2>, [4, 5, 6, 7]",
    )
    given, made = (f"!ifrt.array<tensor<8x16xf32>, {where}>" for where in (here, there))
    text = f"""module @jit_move {{ func.func public @main(%a: {given}) -> {made} attributes {{ifrt.function}} {{
        %b, %c = "ifrt.Reshard"(%a) <{{donated = false, operandSegmentSizes = array<i32: 1, 0>}}>
            : ({given}) -> ({made}, !ifrt.control)
        return %b : {made} }} }}"""
    spec, mesh = jax.sharding.PartitionSpec, jax.sharding.Mesh
    rows = jax.sharding.NamedSharding(mesh(np.array(devices[:4]), ("x",)), spec("x"))
    tiles = jax.sharding.NamedSharding(mesh(np.array(devices[4:]).reshape(2, 2), ("y", "x")), spec("x", "y"))
    x = np.arange(128, dtype=np.float32).reshape(8, 16)
    move = compiled(text, devices, [jax.core.ShapedArray(x.shape, x.dtype)], [tiles])
    (found,) = move.execute([jax.device_put(x, rows)])
    shards = all(np.array_equal(np.asarray(each.data), x[each.index]) for each in found.addressable_shards)
    print("reshard", shards, np.array_equal(np.asarray(found), x))


def refused(devices: Any, text: str) -> None:
    """A stage that may not be compiled, and how it is told."""
    changed = re.sub(
        r'"stablehlo.tanh"\((%\w+)\)', r'"stablehlo.custom_call"(\1) <{call_target_name = "never_heard_of"}>', text
    )
    try:
        compiled(changed, devices, [], [])
    except Exception as error:
        print(str(error).partition(";")[0])


if __name__ == "__main__":
    import jax

    names = sys.argv[2:]
    for each in names:
        if each == "refused":
            refused(jax.devices(), text_of(TWO_STAGES))
        elif each == "reshard":
            try:
                reshard(jax.devices())
            except Exception as error:
                print(error)
        elif each != "shapes":
            main(int(sys.argv[1]), each, "shapes" in names)

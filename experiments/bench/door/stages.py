"""A step of several stages on two meshes, as one MPMD program and stage by stage: what `door` measures of it.

    x --stage on the first half of the devices--> copied --stage on the second half--> y      for each micro-batch

Neighbours: `programs`, which has the other figures.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from backend.sandbox import ifrt_context

BATCHES = 8
SHAPE = (96, 16)
ONE, EACH = f"MPMD step of {2 * BATCHES} stages", f"the same {2 * BATCHES} stages, one by one"


def stages(jax: Any, times: int) -> dict[str, float]:
    """Microseconds of a step. JAX's own devices know no MPMD programs."""
    devices = jax.devices()
    half = len(devices) // 2
    places = [
        jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(some), ("x",)), jax.sharding.PartitionSpec("x"))
        for some in (devices[:half], devices[half : 2 * half])
    ]
    given = [jax.device_put(np.ones(SHAPE, np.float32), places[0]) for _ in range(BATCHES)]
    stage = jax.jit(jax.numpy.tanh)

    def one_by_one() -> Any:
        return [stage(jax.device_put(stage(x), places[1])) for x in given]

    found = {EACH: _took(jax, one_by_one, times)}
    if devices[0].client.runtime_type.startswith("proxy"):
        program = compiled_stages(jax, devices[: 2 * half], places[1])
        found[ONE] = _took(jax, lambda: program.execute(given), times)
    return found


def _took(jax: Any, step: Any, times: int) -> float:
    made = jax.block_until_ready(step())
    begun = time.perf_counter()
    for _ in range(times):
        made = step()
    jax.block_until_ready(made)
    return (time.perf_counter() - begun) * 1e6 / times


def compiled_stages(jax: Any, devices: Any, place: Any) -> Any:
    """The MPMD program, with an `execute`: of arrays on the first half of the devices it makes some on the second,
    which is `place`."""
    with ifrt_context() as ir:
        mpmd: Any = importlib.import_module("jaxlib._sdy_mpmd")
        module = ir.Module.parse(_text(len(devices) // 2))
        aval = jax.core.ShapedArray(SHAPE, np.dtype(np.float32))
        return mpmd.compile_mpmd(
            backend=devices[0].client, ifrt_mlir_module=module, devices=devices, out_avals=[aval] * BATCHES,
            out_shardings=[place] * BATCHES, xla_compile_options=mpmd.get_compile_options(module, {}),
        )  # fmt: skip


def _text(half: int) -> str:
    rows, columns = SHAPE
    tensor, cut = f"tensor<{rows}x{columns}xf32>", '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    places = [list(range(half)), list(range(half, 2 * half))]
    a, b = (f"!ifrt.array<{tensor}, #ifrt.sharding_param<{half}x1 to [0] on {half}>, {each}>" for each in places)

    def call(at: int, kind: str) -> str:
        return (
            f"<{{callee = @stage::@main, devices = #ifrt<devices{places[at]}>, donated_input_indices = array<i32>, "
            f'io_aliases = [], operandSegmentSizes = array<i32: 1, 0>}}> {{ifrt.mesh_name = "m{at}"}} : '
            f"({kind}) -> ({kind}, !ifrt.control)"
        )

    copy = "<{donated = false, operandSegmentSizes = array<i32: 1, 0>, reuse = false}>"
    body = "\n".join(
        f'%b{n}, %c{n} = "ifrt.Call"(%a{n}) {call(0, a)}\n'
        f'%d{n}, %e{n} = "ifrt.CopyArrays"(%b{n}) {copy} : ({a}) -> ({b}, !ifrt.control)\n'
        f'%f{n}, %g{n} = "ifrt.Call"(%d{n}) {call(1, b)}'
        for n in range(BATCHES)
    )
    given, made = (
        ", ".join(f"%{name}{n}{kind}" for n in range(BATCHES)) for name, kind in (("a", f": {a}"), ("f", ""))
    )
    results = ", ".join([b] * BATCHES)
    return f"""module @jit_step {{
      func.func public @main({given}) -> ({results}) attributes {{ifrt.function}} {{
        {body}
        return {made} : {results} }}
      "builtin.module"() <{{sym_name = "stage", sym_visibility = "private"}}> ({{
        sdy.mesh @mesh = <["x"={half}]>
        func.func @main(%a: {tensor} {cut}) -> ({tensor} {cut}) {{
          %b = stablehlo.tanh %a : {tensor}
          return %b : {tensor} }} }}) : () -> () }}"""

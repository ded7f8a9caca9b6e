"""A step of several stages on two meshes, as one MPMD program.

x --stage on the first half of the devices--> copied --stage on the second half--> y      for each micro-batch
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from backend.sandbox import ifrt_context

BATCHES = 8
SHAPE = (96, 16)


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

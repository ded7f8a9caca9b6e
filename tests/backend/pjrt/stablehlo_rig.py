"""Raw StableHLO as a client of the IFRT protocol sends it, and programs of one node that run it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from backend.contents import StableHLOCode
from backend.xla.compile_options import CompileOptions
from core.model.program import Arg, Out, Value

from .pjrt_rig import AXES, P, Work, dtype_of, value

native: Any = importlib.import_module("jaxlib._jax")
ir: Any = importlib.import_module("jax._src.lib.mlir").ir
mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")


def artifact(module: Any) -> bytes:
    """A portable artifact; sharding annotations stay as they are, since the door says `serialize_with_sdy`."""
    with mlir.make_ir_context():
        if isinstance(module, str):
            module = ir.Module.parse(module)
        return bytes(native.mlir.serialize_portable_artifact(module, stablehlo.get_current_version(), True))


def lowered(
    fn: Callable[..., Any], mesh: tuple[int, ...], inputs: Sequence[Value], outputs: Sequence[Value] | None = None,
    **options: Any,
) -> bytes:  # fmt: skip
    """`fn` for devices that are not here; without `outputs`, the compiler decides how results are split."""
    names = tuple(AXES[: len(mesh)])
    abstract = AbstractMesh(mesh, names, axis_types=(AxisType.Auto,) * len(mesh))

    def lies(each: Value) -> Any:
        return NamedSharding(abstract, P(*(tuple(names[axis] for axis in axes) for axes in each.sharding.dims)))

    shape: Any = jax.ShapeDtypeStruct
    looks = [shape(each.shape, dtype_of(each.dtype), sharding=lies(each)) for each in inputs]
    if outputs is not None:
        options["out_shardings"] = lies(outputs[0]) if len(outputs) == 1 else tuple(map(lies, outputs))
    traced: Any = jax.jit(fn, **options).trace(*looks)
    return artifact(traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo"))


def compile_options(devices: int | Sequence[int], **more: Any) -> bytes:
    """As JAX makes them, for devices of the place by their positions."""
    order = range(devices) if isinstance(devices, int) else devices
    found = CompileOptions()
    build = found.executable_build_options
    build.num_replicas, build.num_partitions = 1, len(order)
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment.replica_count = 1
    build.device_assignment.computation_count = len(order)
    for device in order:
        build.device_assignment.computation_devices.add(replica_device_ids=[device])
    for name, wanted in more.items():
        found.env_option_overrides[name].string_field = wanted
    return bytes(found.SerializeToString())


def raw(
    name: str, program: bytes, mesh: tuple[int, ...], inputs: Sequence[Value], outputs: Sequence[Value],
    *, donate: tuple[int, ...] = (), question: str = "", options: bytes | None = None,
) -> Work:  # fmt: skip
    """A program of one node that runs this code on all its arguments."""
    work = Work(mesh, *inputs)
    devices = 1
    for extent in mesh:
        devices *= extent
    code = StableHLOCode(program, compile_options(devices) if options is None else options, question)
    work.call(
        name, None, [Arg(at) for at in range(len(inputs))], inputs, outputs, donate=donate, exported=code.encode()
    )
    return work


def results(work: Work) -> list[Out]:
    return [Out(0, at) for at in range(len(work.nodes[0].outputs))]


__all__ = ["artifact", "compile_options", "lowered", "raw", "results", "value"]

"""Compile options of a client, of which only what is safe is passed on to the compiler.

    safe_options(CompileOptionsProto bytes, count) -> (CompileOptionsProto bytes, devices of the program)
    flags_of(CompileOptionsProto bytes)            -> XLA's flags in the environment of whoever made them

Options are the client's XLA flags: some make the compiler write or read files of this machine (`xla_dump_to`). So this
is a list of what is allowed: a new message is filled with it, and all else is left out. `protos/xla.proto` does not
even have most of the fields that are left out. A program may name flags itself (`jax.jit(compiler_options=...)`): those
of `FLAGS` are passed on, and to name another is an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from .schema import message_classes

CompileOptions: Any = message_classes("xla")["xla.CompileOptionsProto"]

ALLOWED_IN_BUILD = (
    "device_ordinal", "num_replicas", "num_partitions", "use_spmd_partitioning", "use_shardy_partitioner",
    "alias_passthrough_params", "optimization_level", "memory_fitting_level",
)  # fmt: skip
ALLOWED_MESSAGES_IN_BUILD = ("result_layout", "device_assignment")
ALLOWED_LISTS_IN_BUILD = ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")
ALLOWED = (
    "parameter_is_tupled_arguments", "compile_portable_executable", "profile_version",
    "allow_in_place_mlir_modification",
)  # fmt: skip
MOST_SHAPES = 1 << 16
DEBUG_OPTIONS = 3  # of executable_build_options: all of XLA's flags, whether they were given or not
# of these, by their numbers, those that are not the program's: where CUDA is, how many CPU devices there are, and what
# JAX sets itself (detailed logging, two caches)
OF_THE_MACHINE = frozenset((61, 102, 252, 306, 310))
# Flags with a number or a truth value, which only change what is computed how fast.
FLAGS = frozenset((
    "xla_allow_excess_precision", "xla_backend_optimization_level", "xla_cpu_enable_fast_math",
    "xla_cpu_enable_fast_min_max", "xla_cpu_fast_math_honor_division", "xla_cpu_fast_math_honor_functions",
    "xla_cpu_fast_math_honor_infs", "xla_cpu_fast_math_honor_nans", "xla_cpu_prefer_vector_width",
    "xla_embed_ir_in_executable", "xla_gpu_all_gather_combine_threshold_bytes",
    "xla_gpu_all_reduce_combine_threshold_bytes", "xla_gpu_autotune_level", "xla_gpu_deterministic_ops",
    "xla_gpu_enable_latency_hiding_scheduler", "xla_gpu_enable_triton_gemm",
    "xla_gpu_enable_while_loop_double_buffering", "xla_gpu_exclude_nondeterministic_ops",
    "xla_gpu_graph_min_graph_size", "xla_gpu_reduce_scatter_combine_threshold_bytes",
    "xla_llvm_disable_expensive_passes",
))  # fmt: skip


DEVICE_COUNT = "--xla_force_host_platform_device_count"  # says nothing about code


def xla_flags(environment: Mapping[str, str]) -> list[str]:
    """XLA's flags there, without the number of CPU devices."""
    return [each for each in environment.get("XLA_FLAGS", "").split() if each.partition("=")[0] != DEVICE_COUNT]


class UnsafeOptions(ValueError):
    """Options that are malformed, or name what is not known here."""


def safe_options(data: bytes, known: int) -> tuple[bytes, tuple[int, ...]]:
    """Raises UnsafeOptions. `known`: the client's devices are numbered below this."""
    try:
        given = CompileOptions.FromString(data)
    except DecodeError:
        raise UnsafeOptions("the compile options cannot be read") from None
    build = given.executable_build_options
    devices = _devices(build, known)
    kept = CompileOptions()
    _copy(given, kept, ALLOWED)
    for shape in given.argument_layouts:
        _check_layout(shape)
        kept.argument_layouts.add().CopyFrom(shape)
    _copy_flags(given, kept)
    ours = kept.executable_build_options
    _copy(build, ours, ALLOWED_IN_BUILD)
    if build.HasField("result_layout"):
        _check_layout(build.result_layout)
    for name in ALLOWED_MESSAGES_IN_BUILD:
        if build.HasField(name):
            getattr(ours, name).CopyFrom(getattr(build, name))
    for name in ALLOWED_LISTS_IN_BUILD:
        getattr(ours, name).extend(getattr(build, name))
    kept.DiscardUnknownFields()
    return kept.SerializeToString(), devices


def flags_of(options: bytes) -> frozenset[tuple[int, Any]]:
    """Numbers and values, but for those that say nothing of the program. Empty if they are not there, or malformed."""
    try:
        build = CompileOptions.FromString(options).executable_build_options
        (data,) = (each.data for each in UnknownFieldSet(build) if each.field_number == DEBUG_OPTIONS)
        return frozenset(
            (each.field_number, each.data)
            for each in UnknownFieldSet(Empty.FromString(data))
            if each.field_number not in OF_THE_MACHINE
        )
    except (DecodeError, ValueError, TypeError):  # not once; no message, or a group in it
        return frozenset()


def assigned_to(options: bytes, ids: Sequence[int]) -> bytes:
    """The same options for other devices: number `n` of the device assignment becomes `ids[n]`."""
    found = CompileOptions.FromString(options)
    for row in found.executable_build_options.device_assignment.computation_devices:
        row.replica_device_ids[:] = [ids[number] for number in row.replica_device_ids]
    written: bytes = found.SerializeToString()
    return written


def _copy(given: Any, kept: Any, names: Sequence[str]) -> None:
    for name in names:
        setattr(kept, name, getattr(given, name))


def _copy_flags(given: Any, kept: Any) -> None:
    for name, value in given.env_option_overrides.items():
        if name in FLAGS:
            kept.env_option_overrides[name].CopyFrom(value)
        elif name.startswith("xla_"):
            raise UnsafeOptions(
                f"the compile option {name[:80]!r} is not passed on: programs may set only those of XLA's flags "
                "that are on a list here, because some write or read files. Leave it out, or give it to the door or to "
                "the cluster's agents, in XLA_FLAGS of their environment"
            )
        else:
            raise UnsafeOptions(f"No such compile option: '{name[:80]}'")


def _devices(build: Any, known: int) -> tuple[int, ...]:
    replicas, partitions = max(build.num_replicas, 1), max(build.num_partitions, 1)
    assignment = build.device_assignment
    rows = [tuple(row.replica_device_ids) for row in assignment.computation_devices]
    if not rows:
        raise UnsafeOptions("the program has no device assignment: programs for any device are not known here")
    if assignment.replica_count != replicas or assignment.computation_count != partitions:
        raise UnsafeOptions(
            f"the program has {replicas} replicas and {partitions} partitions, its device assignment has "
            f"{assignment.replica_count} and {assignment.computation_count}"
        )
    if len(rows) != partitions or any(len(row) != replicas for row in rows):
        raise UnsafeOptions("the device assignment does not have a device for each replica and partition")
    devices = tuple(row[at] for at in range(replicas) for row in rows)
    wrong = next((each for each in devices if not 0 <= each < known), None)
    if wrong is not None:
        raise UnsafeOptions(f"device {wrong} is not one of this session's: they are 0 to {known - 1}")
    if len(set(devices)) != len(devices):
        raise UnsafeOptions("the device assignment names a device twice")
    return devices


def _check_layout(shape: Any, depth: int = 0) -> None:
    """XLA ends its process when a layout does not fit its shape."""
    if depth > 2 or len(shape.tuple_shapes) > MOST_SHAPES:
        raise UnsafeOptions("the layout of an argument is nested too deeply")
    rank = len(shape.dimensions)
    if shape.HasField("layout") and sorted(shape.layout.minor_to_major) != list(range(rank)):
        raise UnsafeOptions(f"the layout {list(shape.layout.minor_to_major)} is not one of {rank} dimensions")
    if any(dim < 0 for dim in shape.dimensions):
        raise UnsafeOptions(f"the shape {list(shape.dimensions)} of an argument has a negative dimension")
    for inner in shape.tuple_shapes:
        _check_layout(inner, depth + 1)

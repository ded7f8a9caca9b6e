"""Programs on JAX's devices of this process: compiled, or loaded as another process compiled them, and described.

    compiled(client, program, options, devices)      StableHLO -> jaxlib's executable
    loaded(client, artifact, options, devices)       what `artifact_of` made in a checker -> the same
    facts_of(executable, ProgramFacts, numbers)      what a session is told

Neighbours: `local_devices`, which runs them; `program_checker`; `stablehlo_programs`, what a program says of itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from jaxlib import _jax

from .dtypes import TOKEN
from .ifrt_messages import OpSharding
from .ifrt_shardings import REPLICATED, ShardingError, ShardSpec, Tiles, tiles_of
from .local_errors import translated
from .session_devices import ArrayType, CompiledFacts, StatusError, unsupported
from .stablehlo_programs import ProgramFacts

__all__ = ["artifact_of", "compiled", "facts_of", "layout_text", "loaded"]

log = logging.getLogger("seaway.door")
native: Any = _jax
MEMORY_STATS = (
    "generated_code_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes", "alias_size_in_bytes",
    "temp_size_in_bytes", "peak_memory_in_bytes", "total_size_in_bytes", "total_allocation_bytes",
    "indefinite_allocations", "peak_unpadded_heap_bytes", "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes", "host_output_size_in_bytes", "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)  # fmt: skip


def compiled(client: Any, program: bytes, options: bytes, devices: Sequence[Any]) -> Any:
    """`options`: a CompileOptionsProto whose device ids are JAX's; `devices`: those of its device assignment."""
    return client.compile_and_load(program, native.DeviceList(tuple(devices)), _parsed(options))


def artifact_of(client: Any, executable: Any) -> bytes:
    """An executable as bytes, which `loaded` reads in another process of this machine; nothing if it has no such
    form."""
    try:
        return bytes(client.serialize_executable(executable))
    except Exception as error:
        log.info("an executable has no form for other processes: %.300s", error)
        return b""


def loaded(client: Any, artifact: bytes, options: bytes, devices: Sequence[Any]) -> Any:
    return client.deserialize_executable(artifact, native.DeviceList(tuple(devices)), _parsed(options))


def _parsed(options: bytes) -> Any:
    fresh = native.CompileOptions()
    return type(fresh).ParseFromString(options)


# --- what is known of an executable -----------------------------------------------------------------------


def facts_of(loaded: Any, about: ProgramFacts, devices: tuple[int, ...], default_kind: str) -> CompiledFacts:
    parameter_shardings = loaded.get_parameter_shardings()
    output_shardings = loaded.get_output_shardings()
    kinds = _tried(lambda: tuple(loaded.get_output_memory_kinds()[0]))
    many = len(devices) > 1
    results = []
    for at, result in enumerate(about.results):
        tiles = REPLICATED
        if many and output_shardings is not None and result.kind != TOKEN:
            tiles = _output_tiles(output_shardings[at], len(devices))
        kind = (
            ""
            if isinstance(kinds, StatusError) or at >= len(kinds) or kinds[at] == default_kind
            else kinds[at]
        )
        results.append(ArrayType(result.kind, result.shape, ShardSpec(devices, tiles, kind)))
    stats = _tried(loaded.get_compiled_memory_stats)
    return CompiledFacts(
        name=about.name,
        devices=devices,
        fingerprint=bytes(loaded.fingerprint or b""),
        parameters=about.parameters,
        results=tuple(results),
        parameter_shardings=_serialized(parameter_shardings),
        output_shardings=_serialized(output_shardings),
        parameter_layouts=_tried(lambda: tuple(map(layout_text, loaded.get_parameter_layouts()))),
        output_layouts=_tried(lambda: tuple(map(layout_text, loaded.get_output_layouts()))),
        output_memory_kinds=kinds,
        donated=about.donated,
        memory_stats={
            name: int(getattr(stats, name))
            for name in MEMORY_STATS
            if not isinstance(stats, StatusError) and hasattr(stats, name)
        },
        code_size=int(loaded.size_of_generated_code_in_bytes() or 0),
    )


def _output_tiles(sharding: Any, count: int) -> Tiles:
    try:
        return tiles_of(OpSharding.FromString(sharding.SerializeToString()), count)
    except ShardingError as error:
        raise unsupported(f"a result of the program has a sharding that is not known here: {error}") from None


def _serialized(shardings: Any) -> tuple[bytes, ...] | None:
    return None if shardings is None else tuple(each.SerializeToString() for each in shardings)


def layout_text(layout: Any) -> str:
    text = layout.__getstate__()[0]
    return text.decode() if isinstance(text, bytes) else str(text)


def _tried(question: Callable[[], Any]) -> Any:
    try:
        with translated():
            return question()
    except StatusError as fault:
        return fault

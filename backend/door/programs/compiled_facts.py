"""What a session is told of a compiled program: what it says of itself, with what its compiler said.

    compiled_facts(ProgramFacts, CompiledAbout, devices, default memory kind) -> CompiledFacts

Neighbours: `stablehlo_programs`, which reads programs; `session_devices`; `backend.contents`, of `CompiledAbout`.
"""

from __future__ import annotations

from typing import Any

from backend.contents import AboutError, CompiledAbout

from ..protocol import REPLICATED, TOKEN, OpSharding, ShardingError, ShardSpec, Tiles, tiles_of
from ..session import ArrayType, CompiledFacts, StatusError, unsupported
from .stablehlo_programs import ProgramFacts


def compiled_facts(
    about: ProgramFacts, compiled: CompiledAbout, devices: tuple[int, ...], default_kind: str
) -> CompiledFacts:
    """`devices`: the session's numbers of them. Raises StatusError if a result is split as nothing here can be."""
    kinds = _known(compiled.output_memory_kinds)
    results = []
    for at, result in enumerate(about.results):
        tiles = REPLICATED
        if len(devices) > 1 and compiled.output_shardings is not None and result.kind != TOKEN:
            tiles = tiles_on(compiled.output_shardings[at], len(devices))
        named = not isinstance(kinds, StatusError) and at < len(kinds) and kinds[at] != default_kind
        results.append(
            ArrayType(result.kind, result.shape, ShardSpec(devices, tiles, str(kinds[at]) if named else ""))
        )
    return CompiledFacts(
        name=about.name, devices=devices, fingerprint=compiled.fingerprint, parameters=about.parameters,
        results=tuple(results), parameter_shardings=compiled.parameter_shardings,
        output_shardings=compiled.output_shardings, parameter_layouts=_known(compiled.parameter_layouts),
        output_layouts=_known(compiled.output_layouts), output_memory_kinds=kinds, donated=about.donated,
        memory_stats=compiled.memory_stats, code_size=compiled.code_size,
    )  # fmt: skip


def tiles_on(sharding: bytes, count: int) -> Tiles:
    """A serialized OpSharding over `count` devices. Raises StatusError."""
    try:
        return tiles_of(OpSharding.FromString(sharding), count)
    except ShardingError as error:
        raise unsupported(f"a result of the program has a sharding that is not known here: {error}") from None


def _known(found: Any) -> Any:
    return StatusError(found.code, found.text) if isinstance(found, AboutError) else found

"""Programs as sessions speak of them, and errors of XLA with the protocol's codes.

A program's callers are told the types of results before it has run, so these come from the signature of `@main`. Every
operation and foreign function is looked at first: a callback would follow an address of the client's process, and end
this one. Neighbours: `sandbox`, where programs are read and compiled in a process that may die of it; `local_devices`,
`cluster_executables` and `described_code`.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from ..contents import AboutError, CompiledAbout, StagedProgram
from ..pjrt.code import ArrayFacts, CallbackFacts, MainFacts, stablehlo_executables
from ..sandbox import ProgramGate, read_stages
from ..sandbox import read_program as main_of_program
from .protocol import REPLICATED, TOKEN, OpSharding, ShardingError, ShardSpec, Tiles, kind_of_mlir, tiles_of
from .session import ArrayType, CompiledFacts, StatusError, unsupported


class ResultFacts(NamedTuple):
    kind: int
    shape: tuple[int, ...]


class ProgramFacts(NamedTuple):
    name: str
    parameters: tuple[ResultFacts | None, ...]
    results: tuple[ResultFacts, ...]
    donated: tuple[int, ...]
    callbacks: tuple[CallbackFacts, ...]


def read_program(artifact: bytes, more: Collection[str], callbacks: bool) -> ProgramFacts:
    """`more`: foreign functions that are allowed besides the built-in list. `callbacks`: its client answers calls of
    functions in its process. Raises StatusError."""
    with translated():
        return program_facts(main_of_program(artifact, more, callbacks=callbacks))


def program_facts(main: MainFacts) -> ProgramFacts:
    return ProgramFacts(
        main.name, tuple(map(_parameter, main.parameters)), tuple(map(_result, main.results)), main.donated,
        main.callbacks,
    )  # fmt: skip


def _parameter(facts: ArrayFacts | None) -> ResultFacts | None:
    """None: a type that a caller cannot be checked against."""
    kind = None if facts is None else kind_of_mlir(facts.element)
    return None if facts is None or kind is None else ResultFacts(kind, facts.shape)


def _result(facts: ArrayFacts | None) -> ResultFacts:
    if facts is None:
        return ResultFacts(TOKEN, ())
    kind = kind_of_mlir(facts.element)
    if kind is None:
        raise unsupported(f"a result has elements of type {facts.element}, which are not known here")
    return ResultFacts(kind, facts.shape)


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
        results.append(ArrayType(result.kind, result.shape, ShardSpec(devices, tiles, str(kinds[at]) if named else "")))
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


def known_stages(gate: ProgramGate | None, program: bytes, serdes: int) -> StagedProgram | StatusError:
    """Read by a child of the gate's; None: here, since programs are trusted."""
    try:
        with translated():
            return read_stages(program, serdes) if gate is None else gate.read_stages(program, serdes)
    except StatusError as fault:
        return fault


def _known(found: Any) -> Any:
    return StatusError(found.code, found.text) if isinstance(found, AboutError) else found


# --- errors -----------------------------------------------------------------------------------------------


def fault_of(error: BaseException) -> StatusError:
    if isinstance(error, StatusError):
        return error
    return StatusError(*stablehlo_executables.status_of(error))


class translated:  # noqa: N801 (used as a function; a class costs a third of a contextmanager)
    """Turns errors of JAX within its block into faults."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and isinstance(error, Exception) and not isinstance(error, StatusError):
            raise fault_of(error) from error

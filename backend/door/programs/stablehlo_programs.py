"""What a StableHLO program says about itself: its name, results, donated arguments, and what it would call.

    read_program(bytes, more) -> ProgramFacts         raises StatusError for a program that may not run

A program's callers are told the types of results before it has run, so these come from the signature of `@main`. Every
operation and foreign function is looked at, by the rules of `backend.pjrt` for code of others: a callback would follow
an address of the client's process, and end this one. One of the two modules of the door that import JAX.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from backend.pjrt import ArrayFacts, MainFacts, inspection, stablehlo_reading, targets

from ..protocol import TOKEN, kind_of_mlir
from ..session import invalid, unsupported


class ResultFacts(NamedTuple):
    kind: int
    shape: tuple[int, ...]


class ProgramFacts(NamedTuple):
    name: str
    parameters: tuple[ResultFacts | None, ...]
    results: tuple[ResultFacts, ...]
    donated: tuple[int, ...]


def read_program(artifact: bytes, more: Collection[str]) -> ProgramFacts:
    """`more`: foreign functions that are allowed besides the built-in list."""
    try:
        with stablehlo_reading.module_of(artifact) as module:
            operations, called = inspection.operations_of(module)
            _check(operations, called, more)
            return _facts(stablehlo_reading.main_of(module))
    except stablehlo_reading.UnknownType as error:
        raise unsupported(str(error)) from None
    except stablehlo_reading.MalformedProgram as error:
        raise invalid(str(error)) from None


def _check(operations: Collection[str], called: Collection[str], more: Collection[str]) -> None:
    for name in operations:
        if name in inspection.OUTSIDE or (
            name.partition(".")[0] not in inspection.DIALECTS and name not in inspection.PLAIN
        ):
            raise unsupported(f"the program has the operation {name!r}, which programs may not have here")
    for name in called:
        if targets.is_callback(name):
            raise unsupported(
                f"the program calls back into Python ({name!r}), which no program can that runs elsewhere: "
                "jax.debug.print and callback, pure_callback, io_callback and custom_partitioning work outside jit, or "
                "in a function that runs on local devices (jax.jit(f, device=jax.devices('cpu')[0]))"
            )
        reason = targets.objection(name, more)
        if reason:
            raise unsupported(f"the program is refused: {reason}")


def _facts(main: MainFacts) -> ProgramFacts:
    return ProgramFacts(
        main.name, tuple(map(_parameter, main.parameters)), tuple(map(_result, main.results)), main.donated
    )


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

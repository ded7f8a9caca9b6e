"""What a StableHLO program says about itself: its name, results, donated arguments, and what it would call.

    read_program(bytes, more) -> ProgramFacts         raises StatusError for a program that may not run

A program's callers are told the types of results before it has run, so these come from the signature of `@main`. Every
operation and foreign function is looked at, by the rules of `backend.pjrt` for code of others: a callback would follow
an address of the client's process, and end this one. One of the two modules of the door that import JAX.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, NamedTuple

from backend.pjrt import inspection, targets

from .dtypes import TOKEN, kind_of_mlir
from .session_devices import StatusError, invalid, unsupported

__all__ = ["ProgramFacts", "ResultFacts", "read_program"]

LONGEST = 300  # characters of an error text from other software


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
    stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    with mlir.make_ir_context() as context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, artifact)
        except Exception as error:
            raise invalid(f"the program is not StableHLO that can be read here: {_short(error)}") from None
        operations, called = inspection.operations_of(module)
        _check(operations, called, more)
        return _facts(module)


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


def _facts(module: Any) -> ProgramFacts:
    main = next((op for op in module.body.operations if _named(op, "sym_name") == "main"), None)
    if main is None:
        raise invalid("the program has no function 'main'")
    kind = main.operation.attributes["function_type"].value
    results = tuple(_result(each) for each in kind.results)
    donated = tuple(at for at, attributes in enumerate(_argument_attributes(main)) if _is_donated(attributes))
    parameters = tuple(_parameter(each) for each in kind.inputs)
    return ProgramFacts(_named(module.operation, "sym_name") or "main", parameters, results, donated)


def _named(operation: Any, attribute: str) -> str:
    try:
        return str(operation.attributes[attribute].value)
    except (KeyError, AttributeError):
        return ""


def _argument_attributes(main: Any) -> Any:
    try:
        return list(main.operation.attributes["arg_attrs"])
    except KeyError:
        return []


def _is_donated(attributes: Any) -> bool:
    if "tf.aliasing_output" in attributes:
        return True
    return "jax.buffer_donor" in attributes and bool(attributes["jax.buffer_donor"].value)


def _parameter(mlir_type: Any) -> ResultFacts | None:
    """None: a type that a caller cannot be checked against."""
    try:
        found = _result(mlir_type)
    except StatusError:
        return None
    return found if found.kind != TOKEN else None


def _result(mlir_type: Any) -> ResultFacts:
    """A result that is no array is a token."""
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    try:
        tensor = ir.RankedTensorType(mlir_type)
    except (ValueError, TypeError):
        return ResultFacts(TOKEN, ())
    if not tensor.has_static_shape:
        raise unsupported(f"a result has the type {type}, whose shape is not known before it runs")
    kind = kind_of_mlir(str(tensor.element_type))
    if kind is None:
        raise unsupported(f"a result has elements of type {tensor.element_type}, which are not known here")
    return ResultFacts(kind, tuple(tensor.shape))


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."

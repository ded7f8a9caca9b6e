"""Reads raw StableHLO: what a program says of itself, and what it would call, before anything is compiled.

    with module_of(artifact) as module: ...     its operations; raises MalformedProgram
    main_of(module) -> MainFacts                the signature of @main; raises MalformedProgram
    numbered(module) -> callbacks               what it calls in its client's process, from now on by 0, 1, ...

Reading such bytes may crash, so bytes of clients that are not trusted are read in a checker first. Neighbours:
`stablehlo_codes`; `sandbox.inspection`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..jax_errors import short

FOREIGN = "stablehlo.custom_call"
CALLBACKS = frozenset(
    f"xla_ffi{how}_python_{where}_callback" for how in ("", "_partitioned") for where in ("cpu", "gpu")
)
CONFIG = "mhlo.backend_config"  # where such a call has the function's number


class MalformedProgram(ValueError):
    """Bytes that are no program."""


class UnknownType(MalformedProgram):
    """A result whose type is not known here."""


class ArrayFacts(NamedTuple):
    """`element`: its type, as MLIR writes it. `shape`: of the whole array."""

    element: str
    shape: tuple[int, ...]


TOKEN = ArrayFacts("i1", (0,))  # as an argument


class CallbackFacts(NamedTuple):
    """A function of the client's process, as that has numbered it. `results`: None is a token."""

    function: int
    results: tuple[ArrayFacts | None, ...]


class MainFacts(NamedTuple):
    """`parameters`: None is one of a type that no array has; a token is what JAX passes for it, an array of no truth
    values. `results`: None is a token. `donated`: indices of the parameters whose memory the program takes over.
    `callbacks`: what it calls in its client's process."""

    name: str
    parameters: tuple[ArrayFacts | None, ...]
    results: tuple[ArrayFacts | None, ...]
    donated: tuple[int, ...]
    callbacks: tuple[CallbackFacts, ...] = ()


@contextmanager
def module_of(artifact: bytes) -> Iterator[Any]:
    stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    with mlir.make_ir_context() as context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, artifact)
        except Exception as error:
            raise MalformedProgram(f"the program is not StableHLO that can be read here: {short(error)}") from None
        yield module


def main_of(module: Any) -> MainFacts:
    main = next((op for op in module.body.operations if _named(op, "sym_name") == "main"), None)
    if main is None:
        raise MalformedProgram("the program has no function 'main'")
    kind = main.operation.attributes["function_type"].value
    donated = tuple(at for at, attributes in enumerate(_argument_attributes(main)) if _is_donated(attributes))
    return MainFacts(
        _named(module.operation, "sym_name") or "main", tuple(map(_parameter, kind.inputs)),
        tuple(map(_array, kind.results)), donated, numbered(module),
    )  # fmt: skip


def numbered(module: Any) -> tuple[CallbackFacts, ...]:
    """What it calls in its client's process. The calls name these by their place here, as XLA wants it, instead of by
    their client's numbers."""
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    found: dict[int, CallbackFacts] = {}

    def see(operation: Any) -> Any:
        if operation.name == FOREIGN and _named(operation, "call_target_name") in CALLBACKS:
            function, types = _function_of(operation), tuple(_array(each.type) for each in operation.results)
            facts = found.setdefault(function, CallbackFacts(function, types))
            if facts.results != types:
                raise MalformedProgram(f"function {function} is called with results of two types")
            number = ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), list(found).index(function))
            operation.attributes[CONFIG] = ir.DictAttr.get({"index": number})
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(see)
    return tuple(found.values())


def _function_of(operation: Any) -> int:
    try:
        return int(str(operation.attributes[CONFIG]["index"]).partition(" ")[0])
    except (KeyError, TypeError, ValueError):
        raise MalformedProgram("a call into Python does not say which function it calls") from None


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


def _parameter(mlir_type: Any) -> ArrayFacts | None:
    try:
        return TOKEN if str(mlir_type) == "!stablehlo.token" else _array(mlir_type)
    except UnknownType:
        return None


def _array(mlir_type: Any) -> ArrayFacts | None:
    """None: it is no array, so it is a token."""
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    try:
        tensor = ir.RankedTensorType(mlir_type)
    except (ValueError, TypeError):
        return None
    if not tensor.has_static_shape:
        raise UnknownType(f"a result has the type {mlir_type}, whose shape is not known before it runs")
    return ArrayFacts(str(tensor.element_type), tuple(tensor.shape))

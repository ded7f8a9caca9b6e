"""Inspects code of clients before it is compiled: every operation and every foreign function, by its name.

    inspect(blob, ...)                      what `jax.export` wrote: raises CodeRefused
    inspect_program(artifact, ...)          raw StableHLO, for agents: raises CodeRefused
    read_program(artifact, more)            raw StableHLO, for the door: its signature; raises StatusError

Four operations of StableHLO communicate with the host or with other programs, and are refused. So are foreign
functions that `targets` does not allow, and dialects that exported code never contains. This runs in a child process
(`code_checker`, `program_checker`), since even reading such bytes may crash.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any, NamedTuple

from jax import export

from ..pjrt import jax_errors
from ..pjrt.code import CALLBACKS, FOREIGN, MainFacts, MalformedProgram, UnknownType, main_of, module_of
from ..xla import StatusCode, StatusError
from . import targets

DIALECTS = ("stablehlo", "chlo", "sdy", "func")
PLAIN = ("builtin.module",)
OUTSIDE = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")


class CodeRefused(ValueError):
    """Code that may not be compiled. The text does not name the computation."""


class Objection(NamedTuple):
    """`name`: of the operation, or of the foreign function. `reason`: why clients' code may not have it."""

    kind: str  # "operation", "callback", "function"
    name: str
    reason: str


def inspect(blob: bytes, platform: str, devices: int, more: Collection[str], largest: int) -> None:
    """Raises CodeRefused. `more`: foreign functions that are allowed besides those of `targets`."""
    _check_size(blob, largest)
    try:
        exported: Any = export.deserialize(bytearray(blob))
    except Exception as error:
        raise CodeRefused(f"it is not what jax.export writes: {jax_errors.short(error)}") from error
    if platform not in exported.platforms:
        raise CodeRefused(f"it is for {', '.join(exported.platforms) or 'no platform'}, but runs on {platform} here")
    if exported.nr_devices not in (1, devices):
        raise CodeRefused(f"it is for {exported.nr_devices} devices, but the plan runs it on {devices}")
    with importlib.import_module("jax._src.interpreters.mlir").make_ir_context():
        try:
            module = exported.mlir_module(serialized=False)
        except Exception as error:
            raise CodeRefused(f"its StableHLO cannot be read: {jax_errors.short(error)}") from error
        _check_operations(module, more)


def inspect_program(artifact: bytes, more: Collection[str], largest: int, *, callbacks: bool = False) -> None:
    """`callbacks`: its client answers calls of functions in its process."""
    _check_size(artifact, largest)
    try:
        with module_of(artifact) as module:
            _check_operations(module, more, CALLBACKS if callbacks else ())
            main_of(module)
    except MalformedProgram as error:
        raise CodeRefused(str(error)) from None


def _check_size(code: bytes, largest: int) -> None:
    if len(code) > largest:
        raise CodeRefused(f"it has {len(code)} bytes, but at most {largest} are allowed")


def _check_operations(module: Any, more: Collection[str], answered: Collection[str] = ()) -> None:
    if found := objection(module, more, answered):
        raise CodeRefused(found.reason)


def read_program(artifact: bytes, more: Collection[str], *, callbacks: bool = False) -> MainFacts:
    """`more`: foreign functions that are allowed besides the built-in list. `callbacks`: as above."""
    try:
        with module_of(artifact) as module:
            if found := objection(module, more, CALLBACKS if callbacks else ()):
                raise StatusError(StatusCode.UNIMPLEMENTED, _to_a_program(found))
            return main_of(module)
    except UnknownType as error:
        raise StatusError(StatusCode.UNIMPLEMENTED, str(error)) from None
    except MalformedProgram as error:
        raise StatusError(StatusCode.INVALID_ARGUMENT, str(error)) from None


def _to_a_program(found: Objection) -> str:
    match found.kind:
        case "operation":
            return f"the program has the operation {found.name!r}, which programs may not have here"
        case "callback":
            return (
                f"the program calls back into Python ({found.name!r}), and its process does not answer such calls: "
                "install seaway where the program runs (its jax_plugins answers callbacks of jax.debug, pure_callback "
                "and io_callback, on CPU and GPU devices), or call Python between jitted functions; with equinox, "
                "EQX_ON_ERROR=nan does without"
            )
        case _:
            return f"the program is refused: {found.reason}"


def objection(module: Any, more: Collection[str], answered: Collection[str] = ()) -> Objection | None:
    """The first operation or foreign function that clients' code may not have; None: there is none."""
    operations, called = operations_of(module)
    for name in operations:
        if name in OUTSIDE or (name.partition(".")[0] not in DIALECTS and name not in PLAIN):
            return Objection("operation", name, f"it has the operation {name!r}, which clients' code may not have")
    for name in called:
        if reason := targets.objection(name, more, answered):
            return Objection("callback" if targets.is_callback(name) else "function", name, reason)
    return None


def operations_of(module: Any) -> tuple[list[str], list[str]]:
    """The names of its operations, and of the foreign functions that it calls; both sorted."""
    ir = importlib.import_module("jax._src.lib.mlir").ir
    operations: set[str] = set()
    called: set[str] = set()

    def see(operation: Any) -> Any:
        name = operation.name
        operations.add(name)
        if name == FOREIGN:
            called.add(_target(operation))
        return ir.WalkResult.ADVANCE

    module.operation.walk(see)
    return sorted(operations), sorted(called)


def _target(operation: Any) -> str:
    try:
        return str(operation.attributes["call_target_name"].value)
    except (KeyError, AttributeError, UnicodeDecodeError):
        return "a name that is no text"

"""Inspects a client's code before it is compiled: every operation, by its name.

Four operations of StableHLO communicate with the host or with other programs, and are refused. So are foreign
functions that `targets` does not allow, and dialects that exported code never contains. Raw StableHLO is read by
`stablehlo_reading` and checked by the same rules. This runs in the child
process of `checker`, since even reading such bytes may crash.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from jax import export

from . import targets

DIALECTS = ("stablehlo", "chlo", "sdy", "func")
PLAIN = ("builtin.module",)
OUTSIDE = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")
FOREIGN = "stablehlo.custom_call"
LONGEST = 300  # characters of an error text from other software


class CodeRefused(ValueError):
    """Code that may not be compiled. The text does not name the computation."""


def inspect(blob: bytes, platform: str, devices: int, more: Collection[str], largest: int) -> None:
    """Raises Refused. `more`: foreign functions that are allowed besides those of `targets`."""
    if len(blob) > largest:
        raise CodeRefused(f"it has {len(blob)} bytes, but at most {largest} are allowed")
    try:
        exported: Any = export.deserialize(bytearray(blob))
    except Exception as error:
        raise CodeRefused(f"it is not what jax.export writes: {short(error)}") from error
    if platform not in exported.platforms:
        raise CodeRefused(
            f"it is for {', '.join(exported.platforms) or 'no platform'}, but runs on {platform} here"
        )
    if exported.nr_devices not in (1, devices):
        raise CodeRefused(f"it is for {exported.nr_devices} devices, but the plan runs it on {devices}")
    with importlib.import_module("jax._src.interpreters.mlir").make_ir_context():
        try:
            module = exported.mlir_module(serialized=False)
        except Exception as error:
            raise CodeRefused(f"its StableHLO cannot be read: {short(error)}") from error
        check_operations(module, more)


def check_operations(module: Any, more: Collection[str]) -> None:
    """Raises CodeRefused for an operation or a foreign function that clients' code may not have."""
    operations, called = operations_of(module)
    for name in operations:
        if name in OUTSIDE or (name.partition(".")[0] not in DIALECTS and name not in PLAIN):
            raise CodeRefused(f"it has the operation {name!r}, which clients' code may not have")
    for reason in (targets.objection(name, more) for name in called):
        if reason:
            raise CodeRefused(reason)


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


def short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."

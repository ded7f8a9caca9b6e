"""Reads an MPMD program: a module of XLA's IFRT dialect, with a module of StableHLO for each of its stages.

    read_stages(bytecode, serdes) -> StagedProgram        raises StatusError

Only jaxlib itself knows the dialect, and has no function that loads it: lowering a small program of Shardy's does. The
bytes are not versioned, so they are read for clients of this jaxlib only. A dialect that is not registered is never
allowed, for then attributes would be read as something else. This runs in a child (`program_checker`), as reading such
bytes may crash. Neighbours: `inspection`, which reads each stage's code afterwards; `contents.staged_program`.
"""

import importlib
import io
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ..contents import COPY, RESHARD, StagedCall, StagedProgram, StagedStep
from ..pjrt import jax_errors
from ..pjrt.code import stablehlo_executables
from ..xla import StatusCode, StatusError

STEPS, ARRAYS, USES, CALLS = 1 << 14, 1 << 16, 1 << 20, 1 << 10  # the most that a program may have
TEXT = 1 << 26  # characters of all its arrays' types
LOADS = """module { func.func public @main(%a: !mpmd.mesh_tensor<"m", tensor<f32>>)
-> !mpmd.mesh_tensor<"m", tensor<f32>> attributes {topology = #mpmd.topology<<"m" : <["x"=1]>>>}
{ return %a : !mpmd.mesh_tensor<"m", tensor<f32>> } }"""
DEVICES = re.compile(r"#ifrt<devices\[([\d, ]+)\]>")
MOVES = {"ifrt.CopyArrays": COPY, "ifrt.Reshard": RESHARD}


def read_stages(bytecode: bytes, serdes: int) -> StagedProgram:
    """`serdes`: the serialization version of the client's jaxlib."""
    if serdes != stablehlo_executables.serdes():
        raise StatusError(
            StatusCode.UNIMPLEMENTED,
            f"an MPMD program is read by the jaxlib that wrote it: the client's has serialization version {serdes}, "
            f"and the door's {stablehlo_executables.serdes()} (jaxlib {stablehlo_executables.RELEASE}): use the same "
            "jaxlib at both ends",
        )
    with ifrt_context() as ir:
        try:
            module = ir.Module.parse(bytecode)
        except Exception as error:
            raise _wrong(
                f"it cannot be read here: {jax_errors.short(error)}. Is the jaxlib at both ends the same?"
            ) from None
        try:
            return StageReader(ir, module).program()
        except StatusError:
            raise
        except Exception as error:
            raise _wrong(f"it is not as Shardy writes them: {jax_errors.short(error)}") from None


@contextmanager
def ifrt_context() -> Iterator[Any]:
    """jaxlib's `ir`, in a context that knows the IFRT dialect."""
    native: Any = importlib.import_module("jaxlib._jax")
    # names by which jaxlib's own module looks for jaxlib
    sys.modules.setdefault("jax.jaxlib", importlib.import_module("jaxlib"))
    sys.modules.setdefault("jax.jaxlib._jax", native)
    # MLIR looks for a Python module of each dialect again and again, if it finds none
    sys.modules.setdefault("jaxlib.mlir.dialects.ifrt", ModuleType("jaxlib.mlir.dialects.ifrt"))
    shardy: Any = importlib.import_module("jaxlib._sdy_mpmd")
    ir: Any = importlib.import_module("jax._src.lib.mlir").ir
    with importlib.import_module("jax._src.interpreters.mlir").make_ir_context(), ir.Location.unknown():
        shardy.lower_to_ifrt(ir.Module.parse(LOADS))
        yield ir


def _wrong(why: str, code: int = StatusCode.INVALID_ARGUMENT) -> StatusError:
    return StatusError(code, f"the MPMD program is refused: {why}")


def _too_much(why: str) -> StatusError:
    return _wrong(why, StatusCode.RESOURCE_EXHAUSTED)


class StageReader:
    def __init__(self, ir: Any, module: Any) -> None:
        self._ir, self._module = ir, module
        self._numbers: dict[Any, int] = {}  # of arrays
        self._types: list[str] = []
        self._text_size = 0
        self._calls: dict[StagedCall, int] = {}

    def program(self) -> StagedProgram:
        codes, main = dict[str, Any](), None
        for each in self._module.body.operations:
            operation, name = each.operation, self._text(each.operation, "sym_name")
            if operation.name == "builtin.module":
                codes[name] = operation
            elif operation.name == "func.func" and name == "main":
                main = operation
        if main is None or len(main.regions[0].blocks) != 1:
            raise _wrong("it has no function 'main' of one block")
        block = main.regions[0].blocks[0]
        for argument in block.arguments:
            self._number(argument)
        steps, results = self._steps(block)
        wanted = {each.code for each in self._calls}
        if missing := wanted - set(codes):
            raise _wrong(f"it calls {min(missing)!r}, and has no such module")
        return StagedProgram(
            self._text(self._module.operation, "sym_name") or "main", len(block.arguments), self._donated(main),
            tuple(self._types), tuple(steps), results, tuple(self._calls),
            {name: self._artifact(codes[name]) for name in sorted(wanted)},
        )  # fmt: skip

    def _steps(self, block: Any) -> tuple[list[StagedStep], tuple[int, ...]]:
        steps, uses = list[StagedStep](), 0
        for each in block.operations:
            operation, attributes = each.operation, _attributes(each.operation)
            arrays = list(operation.operands)
            if "operandSegmentSizes" in attributes:  # what follows says only what comes before what
                arrays = arrays[: attributes["operandSegmentSizes"][0]]
            inputs = tuple(self._numbers[operand] for operand in arrays)
            if operation.name == "func.return":
                return steps, inputs
            call = self._call(attributes) if operation.name == "ifrt.Call" else MOVES.get(operation.name)
            if call is None:
                raise _wrong(
                    f"it has the operation {operation.name!r}, which is not known here", StatusCode.UNIMPLEMENTED
                )
            made = [result for result in operation.results if str(result.type) != "!ifrt.control"]
            for result in made:
                self._number(result)
            steps.append(StagedStep(call, inputs, len(made)))
            uses += len(inputs)
            if len(steps) > STEPS or uses > USES or len(self._calls) > CALLS:
                raise _too_much(f"it has more than {STEPS} steps, {USES} uses of arrays or {CALLS} stages")
        raise _wrong("its function 'main' does not return")

    def _call(self, attributes: Mapping[str, Any]) -> int:
        devices = DEVICES.fullmatch(str(attributes["devices"]))
        if devices is None or "ifrt.mesh_name" not in attributes:
            raise _wrong("a call does not say on which devices of which mesh it is")
        code, *function = self._ir.SymbolRefAttr(attributes["callee"]).value
        if function != ["main"]:
            raise _wrong(f"it calls {'::'.join([code, *function])!r}, which is not a module's function 'main'")
        call = StagedCall(code, str(attributes["ifrt.mesh_name"].value), tuple(map(int, devices[1].split(","))))
        return self._calls.setdefault(call, len(self._calls))

    def _number(self, array: Any) -> None:
        self._numbers[array] = len(self._types)
        self._types.append(str(array.type))
        self._text_size += len(self._types[-1])
        if len(self._types) > ARRAYS or self._text_size > TEXT:
            raise _too_much(f"it has more than {ARRAYS} arrays, or their types are too long")

    def _donated(self, main: Any) -> tuple[int, ...]:
        found = _attributes(main).get("arg_attrs", ())
        return tuple(at for at, each in enumerate(found) if "ifrt.donated" in each)

    def _artifact(self, module: Any) -> bytes:
        stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
        written = io.BytesIO()
        module.write_bytecode(written)
        alone = self._ir.Module.parse(written.getvalue())
        older = stablehlo.StablehloCompatibilityRequirement.WEEK_4  # as JAX writes what others are to read
        version = stablehlo.get_version_from_compatibility_requirement(older)
        return bytes(stablehlo.serialize_portable_artifact(alone, version, allow_other_dialects=True))

    def _text(self, operation: Any, attribute: str) -> str:
        found = _attributes(operation).get(attribute)
        return "" if found is None else str(found.value)


def _attributes(operation: Any) -> dict[str, Any]:
    return {name: operation.attributes[name] for name in operation.attributes}

"""Programs: compiled, described, run.

An executable's results have handles that the client chose, but for its first run, whose answer says what they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from backend import xla

from ...protocol import (
    CompiledMemoryStatsProto,
    IfrtResponse,
    OpSharding,
    ShardSpec,
    StatusCode,
    XlaCompileOptionsProto,
    XlaLayoutProto,
    ifrt_shardings,
    name_of,
)
from ..memory_meter import Memory, nbytes_of, release
from ..reply import Operation, Reply
from ..session_arrays import ArrayValue, ArrayValues
from ..session_devices import ArrayType, CompiledFacts, Refs, StatusError, invalid, unsupported
from ..session_state import Carried, ExecutableValue, SessionProgram, SessionState
from . import plugin_programs
from .mpmd import compile_stages
from .reading import _ready
from .starting import set_attributes

log = logging.getLogger("seaway.door")
REFUSED = {
    # By the words after the colon JAX knows that it has to call the function itself, in the client's process.
    "CustomCallProgram": "no pickled code of the client's runs here: PjRtCompiler requires an HloProgram"
}
BESIDE = (
    "Python callbacks are not taken beside a program: where Seaway is installed with the program, its plug-in makes "
    "calls of them, on CPU and GPU devices"
)
MOST_FLAGS = 16  # that a warning names
FITS = 64  # rows of arguments for which an executable remembers that they have the right types


# --- compile ----------------------------------------------------------------------------------------------


def compile_program(state: SessionState, body: Any, reply: Reply) -> None:
    program, options = body.program, body.compile_options
    known = PROGRAMS.get(program.type_name)
    if known is None:
        reason = REFUSED.get(program.type_name.rpartition("::")[2], f"only {', '.join(PROGRAMS)} are known here")
        raise unsupported(f"a program of type {program.type_name!r} is refused: {reason}")
    options_type, begin = known
    if body.host_callbacks:
        raise unsupported(BESIDE)
    if options.type_name != options_type:
        raise unsupported(
            f"compile options of type {options.type_name!r} are refused: only {options_type} is known here"
        )
    limits = state.limits
    if len(program.data) > limits.program_bytes:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"the program has {len(program.data)} bytes, but at most {limits.program_bytes} are allowed: pass large "
            "constants as arguments",
        )
    state.check_executables(1)
    begin(state, program.data, options.data, reply)


def _compile_plugin(state: SessionState, program: bytes, options: bytes, reply: Reply) -> None:
    found = plugin_programs.plugin_program(state, program)
    state.compiling += 1
    _compiled(state, reply, *found)


def _compile_xla(state: SessionState, program: bytes, options: bytes, reply: Reply) -> None:
    safe, devices = safe_options(options, state.count)
    if not state.flags_seen:
        state.flags_seen = True
        _look_at_flags(state, options)
    state.compiling += 1
    answers = state.callbacks if state.callbacks.open else None
    state.devices.compile(program, safe, devices, partial(_compiled, state, reply), answers)


PROGRAMS: Mapping[str, tuple[str, Callable[[SessionState, bytes, bytes, Reply], None]]] = {
    "xla::ifrt::XlaProgram": ("xla::ifrt::XlaCompileOptions", _compile_xla),
    "xla::ifrt::IfrtIRProgram": ("xla::ifrt::IfrtIRCompileOptions", compile_stages),
    plugin_programs.TYPE: (plugin_programs.OPTIONS, _compile_plugin),
}


def _look_at_flags(state: SessionState, options: bytes) -> None:
    own = state.devices.platform.flags
    given = xla.flags_of(XlaCompileOptionsProto.FromString(options).compile_options.SerializeToString())
    if own and given and state.exact and given != own:
        numbers = ", ".join(map(str, sorted({number for number, _ in given ^ own})[:MOST_FLAGS]))
        log.warning(
            "session %x: the program's own XLA flags have no effect: they differ in fields %s of xla.DebugOptions. "
            "Give XLA_FLAGS to the door, or to the cluster's agents", state.session_id, numbers,
        )  # fmt: skip


def _compiled(state: SessionState, reply: Reply, executable: Any, facts: CompiledFacts | StatusError) -> None:
    state.compiling -= 1
    if state.over:
        if not isinstance(facts, StatusError):
            state.devices.unload(executable)
        return
    if isinstance(facts, StatusError):
        reply.fault(facts)
        return
    reply.answer(
        "compile_response", loaded_executable_handle=state.keep_executable(ExecutableValue(executable, facts)),
        name=facts.name, num_devices=len(facts.devices),
        device_ids=facts.devices, addressable_device_ids=facts.devices, fingerprint_value=facts.fingerprint,
        ready_future_handle=state.keep_future(counted=True),
    )  # fmt: skip


# --- describe ---------------------------------------------------------------------------------------------


def metadata(state: SessionState, body: Any, reply: Reply) -> None:
    facts = state.executable(body.loaded_executable_handle).facts
    response = IfrtResponse()
    found = response.loaded_executable_metadata_response
    for name in ("parameter_shardings", "output_shardings"):
        given = getattr(facts, name)
        if given is not None:
            ours = getattr(found, name)
            ours.SetInParent()
            ours.shardings.extend(OpSharding.FromString(each) for each in given)
    for name in ("parameter_layouts", "output_layouts"):
        _set_layouts(found, name, getattr(facts, name))
    kinds = facts.output_memory_kinds
    if isinstance(kinds, StatusError):
        status = found.output_memory_kinds.status
        status.code, status.message = kinds.code, kinds.text
    else:
        found.output_memory_kinds.status.SetInParent()
        found.output_memory_kinds.memory_kind_lists.add(memory_kinds=kinds)
    found.donated_input_indices.SetInParent()
    found.donated_input_indices.donated_input_indices.extend(facts.donated)
    known = CompiledMemoryStatsProto.DESCRIPTOR.fields_by_name
    found.compiled_memory_stats.SetInParent()
    for name, value in facts.memory_stats.items():
        if name in known:
            setattr(found.compiled_memory_stats, name, value)
    found.size_of_generated_code_in_bytes = facts.code_size
    reply.ok(response)


def _set_layouts(found: Any, name: str, layouts: tuple[str | None, ...] | StatusError) -> None:
    if not isinstance(layouts, StatusError) and None in layouts:
        layouts = unsupported("tokens have no layout")
    if isinstance(layouts, StatusError):
        error = getattr(found, f"{name}_error")
        error.code, error.message = layouts.code, layouts.text
    else:
        ours = getattr(found, f"{name}_list")
        ours.SetInParent()
        ours.layouts.extend(layout_proto(each) for each in layouts if each is not None)


def cost_analysis(state: SessionState, body: Any, reply: Reply) -> None:
    def told(found: Mapping[str, Any] | StatusError) -> None:
        """An error goes into the body: a client cannot read it elsewhere."""
        response = IfrtResponse()
        answer = response.loaded_executable_cost_analysis_response
        answer.attributes.SetInParent()
        if isinstance(found, StatusError):
            answer.status.code, answer.status.message = found.code, found.text
        else:
            set_attributes(answer.attributes, found)
        reply.ok(response)

    _ask(state, body, state.devices.cost_analysis, told)


def program_text(state: SessionState, body: Any, reply: Reply) -> None:
    def told(found: str | StatusError) -> None:
        said: dict[str, Any] = {"human_readable_program_text": found}
        if isinstance(found, StatusError):
            said = {"status": {"code": found.code, "message": found.text}}
        reply.answer("loaded_executable_human_readable_program_text_response", **said)

    _ask(state, body, state.devices.program_text, told)


def _ask(state: SessionState, body: Any, ask: Callable[..., None], told: Callable[[Any], None]) -> None:
    value = state.executable(body.loaded_executable_handle)
    try:
        if isinstance(value.executable, SessionProgram):
            raise unsupported(f"{value.executable.name} is a plug-in program: there is nothing to tell of it")
        if value.stages is not None:
            raise unsupported("an MPMD program has several stages, each of which has costs and a text")
        ask(value.executable, told)
    except StatusError as fault:
        told(fault)


def is_deleted(state: SessionState, body: Any, reply: Reply) -> None:
    gone = body.loaded_executable_handle not in state.executables
    reply.answer("loaded_executable_is_deleted_response", is_deleted=gone)


def delete(state: SessionState, body: Any, reply: Reply) -> None:
    _forget(state, body.loaded_executable_handle)
    reply.answer("loaded_executable_delete_response", future_handle=state.keep_future(counted=True))


def destruct(state: SessionState, body: Any, reply: Reply) -> None:
    _forget(state, body.loaded_executable_handle)
    reply.answer("loaded_executable_destruct_response")


def _forget(state: SessionState, handle: int) -> None:
    value = state.executables.pop(handle, None)
    if value is not None:
        state.unload(value)
        for stage in (value.stages or {}).values():
            _forget(state, stage)


# --- run --------------------------------------------------------------------------------------------------


def execute(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.executables.get(body.loaded_executable_handle)
    if value is None:
        raise invalid(f"there is no executable {body.loaded_executable_handle}")
    facts, options, handles = value.facts, body.execute_options, list(body.result_array_handle)
    if isinstance(value.executable, SessionProgram):
        _carry_out(state, value.executable, body, handles, reply)
        return
    if handles and len(handles) != len(facts.results):
        raise invalid(f"{len(handles)} handles for the {len(facts.results)} results of {facts.name}")
    keep: Sequence[int] = tuple(given) if (given := options.non_donatable_input_indices) else ()
    arguments = _arguments(state, value, list(body.args_handles), keep)
    meter, donated = state.memory, _donated(value, arguments, keep) if facts.donated else ()
    if meter.used + value.row.total + facts.passing > meter.most:
        meter.check(value.row.total + facts.passing - sum(nbytes_of(each) for each in donated))
    meter.maker.name = facts.name
    given = [each.ref for each in arguments], keep, options.launch_id
    executed = partial(_executed, state, body, reply, value, donated)
    if facts.waiting is not None:
        go_on = state.hold()
        facts.waiting(*given, lambda refs: go_on(lambda: executed(refs)))
    else:
        executed(state.devices.execute(value.executable, *given))


def _executed(
    state: SessionState, body: Any, reply: Reply, value: ExecutableValue, donated: Sequence[Memory],
    refs: list[Any] | Refs | StatusError,
) -> None:  # fmt: skip
    if isinstance(refs, StatusError):
        raise refs
    options, handles = body.execute_options, list(body.result_array_handle)
    for each in donated:
        release(each)
    response = IfrtResponse()
    found = response.loaded_executable_execute_response
    found.SetInParent()
    if options.fill_status:
        waits = list(refs if isinstance(refs, list) else refs.waits())
        found.status_handle = state.keep_status(body.result_status_handle, waits)
    kept = state.keep_row(handles, value.row, refs)
    if not handles:
        _first_outputs(state, value.facts.results, kept, found)
    reply.ok(response)


def _carry_out(state: SessionState, program: SessionProgram, body: Any, handles: list[int], reply: Reply) -> None:
    """What the session does itself."""
    arguments = [state.arrays.get(handle) for handle in body.args_handles]
    if len(arguments) != program.parameters or (handles and len(handles) != program.results):
        raise invalid(
            f"{program.name} has {program.parameters} parameters and {program.results} results, not {len(arguments)} "
            f"and {len(handles)}"
        )
    carried = partial(_carried, state, body, handles, reply)
    if program.waits:
        go_on = state.hold()
        program.run(state, arguments, lambda made: go_on(lambda: carried(made)))
    else:
        program.run(state, arguments, carried)


def _carried(state: SessionState, body: Any, handles: list[int], reply: Reply, made: Carried | StatusError) -> None:
    if isinstance(made, StatusError):
        raise made
    response = IfrtResponse()
    found = response.loaded_executable_execute_response
    found.SetInParent()
    kept = state.keep_all(handles, made.results)
    if body.execute_options.fill_status:
        waits = [*(ref for _, ref, _ in made.results), *made.waits]
        found.status_handle = state.keep_status(body.result_status_handle, waits)
    if not handles:
        _first_outputs(state, [array_type for array_type, _, _ in made.results], kept, found)
    reply.ok(response)


def _arguments(
    state: SessionState, value: ExecutableValue, handles: Sequence[int], keep: Sequence[int]
) -> list[ArrayValue | ArrayValues]:
    """Those that are one for the session are one here, as far as all of them are donated or none."""
    facts = value.facts
    if len(handles) != len(facts.parameters):
        raise invalid(f"{facts.name} has {len(facts.parameters)} parameters, not {len(handles)}")
    found = state.arrays.named(handles, range(len(handles)) if keep else value.edges)
    index = 0
    for held in found:
        if isinstance(held, ArrayValue):
            _check_argument(facts, index, held.type)
        else:
            key = index, id(held.row), held.at, held.count
            if key not in value.fits:
                for at, array_type in enumerate(held.types, index):
                    _check_argument(facts, at, array_type)
                if len(value.fits) >= FITS:
                    value.fits.clear()
                value.fits[key] = held.row  # which must live for as long as its id stands for it
        index += held.count
    return found


def _check_argument(facts: CompiledFacts, index: int, array_type: ArrayType) -> None:
    devices, parameter = facts.places[index] if facts.places else facts.devices, facts.parameters[index]
    if array_type.sharding.devices != devices:
        raise invalid(f"an argument of {facts.name} is on devices {array_type.sharding.devices}, not on {devices}")
    if parameter is not None and (array_type.kind != parameter[0] or array_type.shape != parameter[1]):
        raise invalid(
            f"an argument of {facts.name} is {name_of(array_type.kind)}{list(array_type.shape)}, not "
            f"{name_of(parameter[0])}{list(parameter[1])}"
        )


def _donated(
    value: ExecutableValue, arguments: Sequence[ArrayValue | ArrayValues], keep: Sequence[int]
) -> tuple[Memory, ...]:
    """The memory that results may take over."""
    found: list[Memory] = []
    index, donated = 0, value.donated.difference(keep) if keep else value.donated
    for held in arguments:
        if index in donated:
            found.append(held.memory)
        index += held.count
    return tuple(found)


def _first_outputs(state: SessionState, types: Sequence[ArrayType], handles: Sequence[int], found: Any) -> None:
    default = state.devices.platform.default_memory_kind()
    named = state.version.serdes_version < NAMELESS
    for handle, array_type in zip(handles, types, strict=True):
        output = found.outputs.add(array_handle=handle)
        output.dtype.kind = array_type.kind
        output.shape.SetInParent()
        output.shape.dims.extend(array_type.shape)
        spec = array_type.sharding
        if named and not spec.memory_kind:
            spec = ShardSpec(spec.devices, spec.tiles, default, spec.shard)
        output.sharding.CopyFrom(ifrt_shardings.write(spec, array_type.shape, state.exact))


NAMELESS = 4  # from this serialization version on, clients leave the name of the default memory away


def fetch_execute_result(state: SessionState, body: Any, reply: Reply) -> None:
    refs = state.statuses.pop(body.result_status_handle, None)
    if refs is None:
        raise invalid(f"there is no execution {body.result_status_handle}, or it has been asked for before")
    if isinstance(refs, StatusError):
        raise refs
    state.devices.when_ready(refs, partial(_ready, reply, "loaded_executable_fetch_execute_result_response"))


OPERATIONS = (
    Operation("compile_request", compile_program),
    Operation("loaded_executable_metadata_request", metadata),
    Operation("loaded_executable_cost_analysis_request", cost_analysis),
    Operation("loaded_executable_human_readable_program_text_request", program_text),
    Operation("loaded_executable_is_deleted_request", is_deleted),
    Operation("loaded_executable_delete_request", delete),
    Operation("loaded_executable_destruct_request", destruct),
    Operation(
        "loaded_executable_execute_request", execute, ("result_array_handle", "result_status_handle"), executes=True
    ),
    Operation("loaded_executable_fetch_execute_result_request", fetch_execute_result),
)


# --- layouts -------------------------------------------------------------------------------------------------------

LAYOUT = re.compile(r"\{([\d,]*)(?::(.*))?\}")
TILES, ELEMENT, SPACE = (re.compile(text) for text in (r"T((?:\([\d,]+\))+)", r"E\((\d+)\)", r"S\((\d+)\)"))
KNOWN = re.compile(r"(?:T(?:\([\d,]+\))+|E\(\d+\)|S\(\d+\))*")


def layout_proto(text: str) -> Any:
    found = LAYOUT.fullmatch(text)
    if found is None or not KNOWN.fullmatch(found[2] or ""):
        raise unsupported(f"the layout {text!r} cannot be said to a client")
    layout, more = XlaLayoutProto(), found[2] or ""
    layout.minor_to_major.extend(_numbers(found[1]))
    if tiles := TILES.search(more):
        for tile in tiles[1].strip("()").split(")("):
            layout.tiles.add(dimensions=_numbers(tile))
    if bits := ELEMENT.search(more):
        layout.element_size_in_bits = int(bits[1])
    if space := SPACE.search(more):
        layout.memory_space = int(space[1])
    return layout


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


# --- compile options -----------------------------------------------------------------------------------------------


def safe_options(data: bytes, known: int) -> tuple[bytes, tuple[int, ...]]:
    """Raises StatusError. `known`: the session's devices are numbered below this."""
    try:
        given = XlaCompileOptionsProto.FromString(data).compile_options
        return xla.safe_options(given.SerializeToString(), known)
    except DecodeError:
        raise invalid("the compile options cannot be read") from None
    except xla.UnsafeOptions as wrong:
        raise invalid(str(wrong)) from None

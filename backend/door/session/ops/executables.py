"""Programs: compiled, described, run.

An executable's results have handles that the client chose, but for its first run, whose answer says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...protocol import (
    CompiledMemoryStatsProto,
    IfrtResponse,
    OpSharding,
    ShardSpec,
    StatusCode,
    ifrt_shardings,
    name_of,
)
from ..memory_meter import Memory, nbytes_of, release
from ..options import safe_options
from ..reply import Reply
from ..session_arrays import ArrayValue, ArrayValues
from ..session_devices import ArrayType, CompiledFacts, StatusError, invalid, unsupported
from ..session_state import ExecutableValue, SessionState
from .layouts import layout_proto
from .operation import Operation
from .reading import _ready
from .starting import set_attributes

PROGRAM, OPTIONS = "xla::ifrt::XlaProgram", "xla::ifrt::XlaCompileOptions"
REFUSED = {
    "CustomCallProgram": "colocated Python would run pickled code of the client's: run it in the client's process",
    "PluginProgram": "it is for a plug-in of Google's own servers (pathwaysutils: profiles, persistence, resharding), "
    "which this door does not have. jax.device_put reshards, and Orbax saves without ENABLE_PATHWAYS_PERSISTENCE",
    "IfrtIRProgram": "MPMD programs are not implemented: run one program for each mesh",
}
COMPILING = 256  # programs of a session that may wait for the compiler
FITS = 64  # rows of arguments for which an executable remembers that they have the right types


# --- compile ----------------------------------------------------------------------------------------------


def compile_program(state: SessionState, body: Any, reply: Reply) -> None:
    program, options = body.program, body.compile_options
    if program.type_name != PROGRAM:
        reason = REFUSED.get(program.type_name.rpartition("::")[2], f"only {PROGRAM} is known here")
        raise unsupported(f"a program of type {program.type_name!r} is refused: {reason}")
    if body.host_callbacks:
        raise unsupported("Python callbacks inside compiled programs do not work through this door")
    if options.type_name != OPTIONS:
        raise unsupported(
            f"compile options of type {options.type_name!r} are refused: only {OPTIONS} is known here"
        )
    limits = state.limits
    if len(program.data) > limits.program_bytes:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"the program has {len(program.data)} bytes, but at most {limits.program_bytes} are allowed: pass large "
            "constants as arguments",
        )
    if len(state.executables) >= limits.executables or state.compiling >= COMPILING:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"a session may have {limits.executables} executables, and {COMPILING} that are being compiled: "
            "jax.clear_caches() frees those that are not in use",
        )
    safe, devices = safe_options(options.data, state.count)
    state.compiling += 1
    state.devices.compile(program.data, safe, devices, partial(_compiled, state, reply))


def _compiled(state: SessionState, reply: Reply, executable: Any, facts: CompiledFacts | StatusError) -> None:
    state.compiling -= 1
    if state.over:
        if not isinstance(facts, StatusError):
            state.devices.unload(executable)
        return
    if isinstance(facts, StatusError):
        reply.fault(facts)
        return
    handle = state.new_handle()
    state.executables[handle] = ExecutableValue(executable, facts)
    response = IfrtResponse()
    found = response.compile_response
    found.loaded_executable_handle = handle
    found.name, found.num_devices = facts.name, len(facts.devices)
    found.device_ids.extend(facts.devices)
    found.addressable_device_ids.extend(facts.devices)
    found.fingerprint_value = facts.fingerprint
    found.ready_future_handle = state.keep_future(counted=True)
    reply.ok(response)


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
        found.output_memory_kinds.status.code, found.output_memory_kinds.status.message = (
            kinds.code,
            kinds.text,
        )
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
    if isinstance(layouts, StatusError):
        error = getattr(found, f"{name}_error")
        error.code, error.message = layouts.code, layouts.text
    elif any(each is None for each in layouts):
        error = getattr(found, f"{name}_error")
        error.code, error.message = StatusCode.UNIMPLEMENTED, "tokens have no layout"
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
        response = IfrtResponse()
        answer = response.loaded_executable_human_readable_program_text_response
        if isinstance(found, StatusError):
            answer.status.code, answer.status.message = found.code, found.text
        else:
            answer.human_readable_program_text = found
        reply.ok(response)

    _ask(state, body, state.devices.program_text, told)


def _ask(state: SessionState, body: Any, ask: Callable[..., None], told: Callable[[Any], None]) -> None:
    executable = state.executable(body.loaded_executable_handle).executable
    try:
        ask(executable, told)
    except StatusError as fault:
        told(fault)


def is_deleted(state: SessionState, body: Any, reply: Reply) -> None:
    response = IfrtResponse()
    found = response.loaded_executable_is_deleted_response
    found.is_deleted = body.loaded_executable_handle not in state.executables
    found.SetInParent()
    reply.ok(response)


def delete(state: SessionState, body: Any, reply: Reply) -> None:
    _forget(state, body.loaded_executable_handle)
    response = IfrtResponse()
    response.loaded_executable_delete_response.future_handle = state.keep_future(counted=True)
    reply.ok(response)


def destruct(state: SessionState, body: Any, reply: Reply) -> None:
    _forget(state, body.loaded_executable_handle)
    reply.empty("loaded_executable_destruct_response")


def _forget(state: SessionState, handle: int) -> None:
    value = state.executables.pop(handle, None)
    if value is not None:
        state.devices.unload(value.executable)


# --- run --------------------------------------------------------------------------------------------------


def execute(state: SessionState, body: Any, reply: Reply) -> None:
    value = state.executables.get(body.loaded_executable_handle)
    if value is None:
        raise invalid(f"there is no executable {body.loaded_executable_handle}")
    facts, options, handles = value.facts, body.execute_options, list(body.result_array_handle)
    if handles and len(handles) != len(facts.results):
        raise invalid(f"{len(handles)} handles for the {len(facts.results)} results of {facts.name}")
    keep: Sequence[int] = tuple(given) if (given := options.non_donatable_input_indices) else ()
    arguments = _arguments(state, value, list(body.args_handles), keep)
    meter, donated = state.memory, _donated(value, arguments, keep) if facts.donated else ()
    if meter.used + value.row.total > meter.most:
        meter.check(value.row.total - sum(nbytes_of(each) for each in donated))
    refs = state.devices.execute(value.executable, [each.ref for each in arguments], keep, options.launch_id)
    for each in donated:
        release(each)
    response = IfrtResponse()
    found = response.loaded_executable_execute_response
    found.SetInParent()
    if options.fill_status:
        status = body.result_status_handle or state.new_handle()
        state.statuses[status] = list(refs if isinstance(refs, list) else refs.waits())
        found.status_handle = status
    kept = state.keep_row(handles, value.row, refs)
    if not handles:
        _first_outputs(state, value, kept, found)
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
    devices, parameter = facts.devices, facts.parameters[index]
    if array_type.sharding.devices != devices:
        raise invalid(
            f"an argument of {facts.name} is on devices {array_type.sharding.devices}, not on {devices}"
        )
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


def _first_outputs(state: SessionState, value: ExecutableValue, handles: Sequence[int], found: Any) -> None:
    default = state.devices.platform.default_memory_kind()
    named = state.version.serdes_version < NAMELESS
    for handle, array_type in zip(handles, value.facts.results, strict=True):
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
        "loaded_executable_execute_request", execute, lambda body: body.result_array_handle, executes=True
    ),
    Operation("loaded_executable_fetch_execute_result_request", fetch_execute_result),
)

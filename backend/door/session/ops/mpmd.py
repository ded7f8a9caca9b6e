"""MPMD programs of Shardy: read, each of their stages compiled, and put together as one executable.

    read_stages --> compile, for each stage --> staged_plan --> staged --> the answer

An MPMD program is run like any other. Neighbours: `executables`, which begins here and runs it; `stage_plans`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from backend import xla
from backend.contents import StagedCall, StagedProgram

from ...protocol import (
    CompiledMemoryStatsProto,
    IfrtIrCompileOptionsProto,
    IfrtIrProgramProto,
    IfrtResponse,
    StatusCode,
)
from ..reply import Operation, Reply
from ..session_devices import ArrayType, CompiledFacts, StatusError, invalid, unsupported
from ..session_state import ExecutableValue, SessionState
from ..stage_plans import staged_plan
from .starting import set_attributes

log = logging.getLogger("seaway.door")


def compile_stages(state: SessionState, program: bytes, options: bytes, reply: Reply) -> None:
    try:
        given, chosen = IfrtIrProgramProto.FromString(program), IfrtIrCompileOptionsProto.FromString(options)
    except DecodeError:
        raise invalid("the MPMD program or its compile options cannot be read") from None
    if given.ifrt_version:
        raise unsupported(f"the MPMD program is in the form 'VIFRT' {given.ifrt_version[:40]}, which is not known here")
    ids = tuple(chosen.device_ids)
    if not ids or len(set(ids)) < len(ids) or not all(0 <= each < state.count for each in ids):
        raise invalid(f"an MPMD program is on some of this session's devices, 0 to {state.count - 1}, each named once")
    state.compiling += 1
    key = hashlib.sha256(program + options).digest()
    compilation = StagesCompilation(state, ids, chosen.compile_option_overrides, key, reply)
    state.devices.read_stages(given.ifrt_program, state.version.serdes_version, compilation.read)


class StagesCompilation:
    """One MPMD program that is being compiled."""

    def __init__(
        self, state: SessionState, ids: tuple[int, ...], options: Mapping[str, Any], fingerprint: bytes, reply: Reply
    ) -> None:
        self._state, self._ids, self._options = state, ids, options
        self._fingerprint, self._reply = fingerprint, reply
        self._program: StagedProgram
        self._made: dict[int, tuple[Any, CompiledFacts]] = {}
        self._left, self._begun = 0, False  # stages that are being compiled
        self._fault: StatusError | None = None

    def read(self, found: StagedProgram | StatusError) -> None:
        if isinstance(found, StatusError):
            self._fault = found
        else:
            self._program = found
            self._attempt(self._begin)
        if not self._begun:
            self._end()

    def _begin(self) -> None:
        calls = self._program.calls
        self._state.check_executables(len(calls) + 1)
        if len({each.key for each in calls}) < len(calls):
            raise invalid("the MPMD program calls one stage on different devices")
        options = [self._options_of(each) for each in calls]
        self._left, self._begun = len(calls), len(calls) > 0 and not self._state.over
        for at, call in enumerate(calls if self._begun else ()):
            devices = [self._ids[each] for each in call.devices]
            code = self._program.codes[call.code]
            self._state.devices.compile(code, options[at], devices, partial(self._compiled, at))

    def _options_of(self, call: StagedCall) -> bytes:
        if call.key not in self._options:
            raise invalid(f"there are no compile options for the stage {call.key!r}")
        try:
            safe, devices = xla.safe_options(self._options[call.key].SerializeToString(), self._state.count)
        except xla.UnsafeOptions as wrong:
            raise invalid(f"the stage {call.key!r}: {wrong}") from None
        if devices != tuple(self._ids[each] for each in call.devices if each < len(self._ids)):
            raise invalid(f"the stage {call.key!r} is compiled for other devices than it is called on")
        return safe

    def _compiled(self, at: int, executable: Any, facts: CompiledFacts | StatusError) -> None:
        if isinstance(facts, StatusError):
            self._fault = self._fault or facts
        else:
            self._made[at] = executable, facts
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        state = self._state
        state.compiling -= 1
        if self._fault is None and not state.over:
            self._attempt(self._put_together)
        if self._fault is not None or state.over:
            for executable, _ in self._made.values():
                state.devices.unload(executable)
        if self._fault is not None and not state.over:
            self._reply.fault(self._fault)

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except StatusError as fault:
            self._fault = fault
        except Exception as error:
            log.exception("an MPMD program")
            text = f"the MPMD program failed in the door: {type(error).__name__}: {error}"
            self._fault = StatusError(StatusCode.INTERNAL, text)

    def _put_together(self) -> None:
        state, ids = self._state, self._ids
        made = [self._made[at] for at in range(len(self._made))]
        plan, facts = staged_plan(
            self._program, ids, [each for _, each in made], state.devices.platform.default_memory_kind(), self._layout
        )
        whole = state.devices.staged(plan, [executable for executable, _ in made], facts)
        calls = self._program.calls
        names = [each.key for each in calls]
        stages = {name: state.keep_executable(ExecutableValue(*each)) for name, each in zip(names, made, strict=True)}
        meshes = {each.mesh: {"mpmd_addressable_device_ids": [ids[at] for at in each.devices]} for each in calls}
        self._reply.answer(
            "compile_response", loaded_executable_handle=state.keep_executable(ExecutableValue(whole, facts, stages)),
            name=facts.name, num_devices=len(ids), device_ids=ids, addressable_device_ids=ids,
            mpmd_addressable_devices={"mpmd_addressable_devices": meshes}, fingerprint_value=self._fingerprint,
            ready_future_handle=state.keep_future(counted=True),
        )  # fmt: skip

    def _layout(self, array_type: ArrayType) -> str:
        spec = array_type.sharding
        return self._state.devices.default_layout(
            array_type.kind, array_type.shard_shape, spec.devices[0], spec.memory_kind
        )


# --- describe ---------------------------------------------------------------------------------------------


def metadata(state: SessionState, body: Any, reply: Reply) -> None:
    known = CompiledMemoryStatsProto.DESCRIPTOR.fields_by_name
    stats = {
        name: {what: value for what, value in stage.facts.memory_stats.items() if what in known}
        for name, stage in _stages(state, body.mpmd_loaded_executable_handle).items()
    }
    reply.answer(
        "loaded_executable_mpmd_metadata_response", mpmd_compiled_memory_stats={"compiled_memory_stats": stats}
    )


def cost_analysis(state: SessionState, body: Any, reply: Reply) -> None:
    stages, response = _stages(state, body.loaded_executable_handle), IfrtResponse()
    answer = response.loaded_executable_mpmd_cost_analysis_response
    answer.attributes.SetInParent()
    left = set(stages)

    def told(name: str, found: Mapping[str, Any] | StatusError) -> None:
        """An error goes into the body: a client cannot read it elsewhere."""
        if isinstance(found, StatusError):
            answer.status.code, answer.status.message = found.code, found.text
        elif answer.WhichOneof("result") == "attributes":
            set_attributes(answer.attributes.attributes[name], found)
        left.discard(name)
        if not left:
            reply.ok(response)

    if not stages:
        reply.ok(response)
    for name, stage in stages.items():
        try:
            state.devices.cost_analysis(stage.executable, partial(told, name))
        except StatusError as fault:
            told(name, fault)


def _stages(state: SessionState, handle: int) -> Mapping[str, ExecutableValue]:
    value = state.executable(handle)
    if value.stages is None:
        raise invalid(f"{value.facts.name} is not an MPMD program")
    return {name: state.executable(stage) for name, stage in value.stages.items()}


OPERATIONS: Sequence[Operation] = (
    Operation("loaded_executable_mpmd_metadata_request", metadata),
    Operation("loaded_executable_mpmd_cost_analysis_request", cost_analysis),
)

"""A refusal is found under every handle that a client has made for results: it waits for no answer, and asks there."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from backend.door.session.ops import OPERATIONS

from ..session_rig import SessionRig
from ..wheel_descriptors import wheel_files

MADE = {  # fields of requests that name what the request is to make
    "make_array_from_host_buffer_request": ("array_handle",),
    "make_arrays_from_host_buffer_shards_request": ("array_handles",),
    "make_error_arrays_request": ("array_handles",),
    "assemble_array_from_single_device_arrays_request": ("result_handle",),
    "remap_arrays_request": ("result_handles",),
    "copy_arrays_request": ("result_handles",),
    "reshard_arrays_request": ("result_handles",),
    "bitcast_arrays_request": ("result_handles",),
    "disassemble_into_single_device_arrays_request": ("result_handles",),
    "fully_replicated_shard_request": ("result_handle",),
    "loaded_executable_execute_request": ("result_array_handle", "result_status_handle"),
}
NAMED = {  # fields that name what is there, or a host buffer, which is fetched after the answer
    "check_future_request": ("future_handle",),
    "check_value_ready_request": ("value_handles",),
    "make_array_from_host_buffer_request": ("host_buffer_handle",),
    "assemble_array_from_single_device_arrays_request": ("single_device_array_handles",),
    "remap_arrays_request": ("array_handles",),
    "copy_arrays_request": ("array_handles",),
    "reshard_arrays_request": ("array_handles",),
    "bitcast_arrays_request": ("array_handles",),
    "copy_to_host_buffer_request": ("array_handle", "host_buffer_handle"),
    "disassemble_into_single_device_arrays_request": ("array_handle",),
    "fully_replicated_shard_request": ("array_handle",),
    "delete_array_request": ("array_handle",),
    "is_array_deleted_request": ("array_handle",),
    "destruct_array_request": ("array_handle",),
    "loaded_executable_metadata_request": ("loaded_executable_handle",),
    "loaded_executable_mpmd_metadata_request": ("mpmd_loaded_executable_handle",),
    "loaded_executable_mpmd_cost_analysis_request": ("loaded_executable_handle",),
    "loaded_executable_cost_analysis_request": ("loaded_executable_handle",),
    "loaded_executable_human_readable_program_text_request": ("loaded_executable_handle",),
    "loaded_executable_execute_request": ("loaded_executable_handle", "args_handles"),
    "loaded_executable_fetch_execute_result_request": ("result_status_handle",),
    "loaded_executable_delete_request": ("loaded_executable_handle",),
    "loaded_executable_is_deleted_request": ("loaded_executable_handle",),
    "loaded_executable_destruct_request": ("loaded_executable_handle",),
    "loaded_host_callback_poll_request": ("loaded_host_callback_handle", "operand_host_buffer_handle"),
    "loaded_host_callback_return_request": ("host_callback_execution_handle", "result_host_buffer_handle"),
}


def handles_in_the_wheel() -> dict[str, set[str]]:
    """The fields that are handles, of each kind of request of the installed jaxlib."""
    messages = {
        found.name: found for file in wheel_files().values() if file.package == "xla.ifrt.proxy"
        for found in file.message_type
    }  # fmt: skip
    return {
        kind.name: {
            field.name for field in messages[kind.type_name.rpartition(".")[2]].field
            if field.type == FieldDescriptorProto.TYPE_FIXED64 and "handle" in field.name
        }
        for kind in messages["IfrtRequest"].field if kind.HasField("oneof_index")
    }  # fmt: skip


def test_each_handle_of_the_installed_protocol_is_one_that_a_request_makes_or_names() -> None:
    ours = {name: {*MADE.get(name, ()), *NAMED.get(name, ())} for name in {*MADE, *NAMED}}
    assert {name: fields for name, fields in handles_in_the_wheel().items() if fields} == ours


def test_each_operation_says_which_handles_it_makes() -> None:
    assert {name: each.results for name, each in OPERATIONS.items() if each.results} == MADE


@pytest.mark.parametrize("kind", MADE)
def test_what_is_refused_is_refused_again_where_its_results_are_used(kind: str) -> None:
    rig = SessionRig()
    rig.array(1)
    rig.session.store(50, b"\0" * 4)
    asked: dict[str, Any] = {"host_buffer_handle": 50} if kind == "make_array_from_host_buffer_request" else {}
    for number, field in enumerate(MADE[kind], 20):
        asked[field] = [number] if field.endswith("s") or field == "result_array_handle" else number
    if kind == "make_error_arrays_request":
        asked["array_handles"] = [20, 21]  # for no arrays
    refused = rig.status(rig.ask(kind.removesuffix("_request"), **asked))
    assert not refused.startswith(("ok", "-"))
    assert rig.status(rig.read(20)) == refused
    assert rig.status(rig.ask("check_value_ready", value_handles=[1, 20])) == refused
    if "result_status_handle" in MADE[kind]:
        assert rig.status(rig.ask("loaded_executable_fetch_execute_result", result_status_handle=21)) == refused
    assert rig.contents(1) == [1, 2]

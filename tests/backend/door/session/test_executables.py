"""Executables: what a client is told of them, what their arguments must be, and which programs are refused."""

from __future__ import annotations

from typing import Any

import pytest

from backend.door.protocol.ifrt_messages import CompileOptionsProto, HloShardingProto
from backend.door.session.ops.executables import layout_proto
from backend.door.session.session_devices import StatusError
from backend.door.session.session_state import SessionLimits

from ..session_rig import SessionRig, replicated


def test_compiling_answers_what_it_is_called_and_where_it_runs() -> None:
    rig = SessionRig()
    rig.compile(b"two", devices=(2, 1))
    found = rig.sent[-1].compile_response
    assert (found.name, found.num_devices, found.fingerprint_value) == ("two", 2, b"print")
    assert list(found.device_ids) == list(found.addressable_device_ids) == [2, 1]
    assert rig.devices.log == ["compile two for [2, 1]"]
    assert CompileOptionsProto.FromString(rig.devices.options).executable_build_options.num_partitions == 2


def test_metadata_are_those_of_the_compiler() -> None:
    rig = SessionRig()
    executable = rig.compile(b"taking")
    found = rig.answer(rig.ask("loaded_executable_metadata", loaded_executable_handle=executable))
    about = found.loaded_executable_metadata_response
    assert [list(each.minor_to_major) for each in about.output_layouts_list.layouts] == [[0]]
    assert list(about.donated_input_indices.donated_input_indices) == [0]
    assert about.output_memory_kinds.memory_kind_lists[0].memory_kinds == ["device"]
    assert not about.HasField("output_shardings")
    assert about.compiled_memory_stats.temp_size_in_bytes == 8
    assert about.size_of_generated_code_in_bytes == 16


def test_an_error_of_cost_analysis_is_in_the_body_where_clients_look_for_it() -> None:
    rig = SessionRig()
    executable = rig.compile()
    asked = rig.ask("loaded_executable_cost_analysis", loaded_executable_handle=executable)
    assert rig.status(asked) == "ok"
    found = rig.answer(asked).loaded_executable_cost_analysis_response
    assert (found.WhichOneof("result"), found.status.message) == ("status", "no costs")
    text = rig.ask("loaded_executable_human_readable_program_text", loaded_executable_handle=executable)
    assert rig.answer(text).loaded_executable_human_readable_program_text_response.human_readable_program_text == "text"


def test_an_executable_that_is_destructed_is_unloaded() -> None:
    rig = SessionRig()
    executable = rig.compile()
    rig.ask("loaded_executable_destruct", loaded_executable_handle=executable)
    rig.ask("loaded_executable_destruct", loaded_executable_handle=executable)
    assert rig.devices.log == ["compile one_more for [0]", "unload"]
    assert "there is no executable" in rig.status(rig.execute(executable, []))
    assert "there is no executable" in rig.status(
        rig.ask("loaded_executable_metadata", loaded_executable_handle=executable)
    )


def test_a_program_that_does_not_compile_says_why() -> None:
    rig = SessionRig()
    assert rig.compile(b"wrong") == 0
    assert rig.status(1) == "INVALID_ARGUMENT: it does not compile"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"program__type_name": "xla::ifrt::CustomCallProgram"},
            "no pickled code of the client's runs here: PjRtCompiler requires an HloProgram",
        ),
        ({"program__type_name": "xla::ifrt::IfrtIRProgram"}, "only xla::ifrt::IfrtIRCompileOptions is known here"),
        ({"program__type_name": "xla::ifrt::OtherProgram"}, "only xla::ifrt::XlaProgram, xla::ifrt::IfrtIR"),
        ({"host_callbacks": [b"f"]}, "Python callbacks are not taken beside a program"),
        ({"compile_options__type_name": "other"}, "compile options of type 'other' are refused"),
        ({"compile_options__data": b"\xff\xff"}, "the compile options cannot be read"),
    ],
)
def test_what_no_server_can_run_is_refused_with_the_reason(change: Any, says: str) -> None:
    rig = SessionRig()
    assert rig.compile(**change) == 0
    assert says in rig.status(1)
    assert rig.devices.log == []


def test_programs_are_bounded_in_size_and_number() -> None:
    rig = SessionRig(limits=SessionLimits(program_bytes=9, executables=2))
    assert rig.compile()
    assert rig.compile()
    assert "a session may have 2 executables" in rig.status(_refused(rig, b"one_more"))
    small = SessionRig(limits=SessionLimits(program_bytes=7))
    assert "the program has 8 bytes, but at most 7" in small.status(_refused(small, b"one_more"))


def _refused(rig: SessionRig, program: bytes) -> int:
    assert rig.compile(program) == 0
    return int(rig.sent[-1].response_metadata.op_id)


def test_arguments_have_to_be_what_the_program_takes() -> None:
    rig = SessionRig()
    executable = rig.compile()
    rig.array(1, (1, 2, 3))
    rig.array(2, (1, 2), device=1)
    for arguments, says in (
        ([], "one_more has 1 parameters, not 0"),
        ([1], "an argument of one_more is f32[3], not f32[2]"),
        ([2], "an argument of one_more is on devices (1,), not on (0,)"),
        ([9], "there is no array 9"),
    ):
        assert says in rig.status(rig.execute(executable, arguments, [50]))
    assert "2 handles for the 1 results" in rig.status(rig.execute(executable, [1], [60, 61]))
    assert "execute" not in rig.devices.log


def output_sharding(rig: SessionRig) -> Any:
    executable = rig.compile(devices=(0, 1))
    rig.session.store(1, b"\0" * 8)
    rig.make(1, (2,), replicated([0, 1]))
    run = rig.answer(rig.execute(executable, [1]))
    return run.loaded_executable_execute_response.outputs[0].sharding.serialized_sharding


def test_results_say_exactly_how_they_are_cut_to_a_client_of_the_same_version_only() -> None:
    same = output_sharding(SessionRig(serdes=6))
    assert same.type_name == "xla::ifrt::HloSharding"
    assert not HloShardingProto.FromString(same.data).HasField("memory_kind")
    older = output_sharding(SessionRig(serdes=3))
    assert older.type_name == "xla::ifrt::ConcreteEvenSharding"
    assert b"device" in older.data, "an older client expects the name of the default memory"


def test_layouts_are_written_from_xlas_text() -> None:
    found = layout_proto("{1,0:T(8,128)(2,1)E(4)S(5)}")
    assert list(found.minor_to_major) == [1, 0]
    assert [list(tile.dimensions) for tile in found.tiles] == [[8, 128], [2, 1]]
    assert (found.element_size_in_bits, found.memory_space) == (4, 5)
    assert not layout_proto("{}").minor_to_major
    for wrong in ("", "[1]", "{1:X(3)}"):
        with pytest.raises(StatusError, match="cannot be said to a client"):
            layout_proto(wrong)


def test_default_assignments_and_layouts() -> None:
    rig = SessionRig()
    found = rig.answer(rig.ask("get_default_device_assignment", num_replicas=2, num_partitions=2))
    rows = found.get_default_device_assignment_response.device_assignment.computation_devices
    assert [list(row.replica_device_ids) for row in rows] == [[0, 2], [1, 3]]
    too_many = rig.ask("get_default_device_assignment", num_replicas=1 << 62, num_partitions=2)
    assert "do not fit on 4 devices" in rig.status(too_many)
    layout = rig.answer(rig.ask("get_default_layout", dims=[2, 3], device_id=1))
    assert layout.get_default_layout_response.serialized_pjrt_layout == b"{1,0}"
    for dims, device in (([-2], 0), ([2], 4)):
        asked = rig.ask("get_default_layout", dims=dims, device_id=device)
        assert rig.status(asked).startswith("INVALID_ARGUMENT")

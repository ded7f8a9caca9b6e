"""An MPMD program in a session: read, its stages compiled, run as one; and what of it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from backend.contents import StagedCall, StagedProgram, StagedStep
from backend.contents.staged_program import COPY
from backend.door.protocol.ifrt_messages import IfrtIrCompileOptionsProto, IfrtIrProgramProto, XlaCompileOptionsProto
from backend.door.session.session_state import SessionLimits

from ..session_rig import SessionRig, compile_options

KIND = "xla::ifrt::IfrtIR"


def array(device: int) -> str:
    return f"!ifrt.array<tensor<2xf32>, #ifrt.sharding_param<1 to [0] on 1>, [{device}]>"


# argument --one_more--> on device 0 --copied--> device 1 --taking--> result; the argument is donated, too
PROGRAM = StagedProgram(
    "pipeline", 1, (0,), (array(0), array(0), array(1), array(1)),
    (StagedStep(0, (0,), 1), StagedStep(COPY, (1,), 1), StagedStep(1, (2,), 1)), (3, 0),
    (StagedCall("one", "a", (0,)), StagedCall("two", "b", (1,))), {"one": b"one_more", "two": b"taking"},
)  # fmt: skip
WRONG = StagedProgram("wrong", 0, (), (), (), (), (StagedCall("one", "a", (0,)),), {"one": b"wrong"})


def options(ids: Sequence[int] = (2, 3), **stages: int) -> bytes:
    """`stages`: on which of the session's devices each is compiled."""
    found = IfrtIrCompileOptionsProto(device_ids=ids)
    for name, device in (stages or {"one_mesh_a": 2, "two_mesh_b": 3}).items():
        given = XlaCompileOptionsProto.FromString(compile_options((device,))).compile_options
        found.compile_option_overrides[name].CopyFrom(given)
    return bytes(found.SerializeToString())


def made(rig: SessionRig, name: str = "pipeline", data: bytes = b"", chosen: bytes | None = None) -> Any:
    rig.devices.staged_programs |= {"pipeline": PROGRAM, "wrong": WRONG}
    program = data or IfrtIrProgramProto(ifrt_program=name.encode()).SerializeToString()
    rig.compile(
        program__type_name=f"{KIND}Program", program__data=program, compile_options__type_name=f"{KIND}CompileOptions",
        compile_options__data=options() if chosen is None else chosen,
    )  # fmt: skip
    return rig.sent[-1] if rig.sent else None


def test_a_program_is_one_executable_whose_stages_have_been_compiled() -> None:
    rig = SessionRig()
    found = made(rig).compile_response
    assert (found.name, found.num_devices, list(found.device_ids)) == ("pipeline", 2, [2, 3])
    meshes = found.mpmd_addressable_devices.mpmd_addressable_devices
    assert {name: list(each.mpmd_addressable_device_ids) for name, each in meshes.items()} == {"a": [2], "b": [3]}
    assert rig.devices.log == [
        "read pipeline of version 6", "compile one_more for [2]", "compile taking for [3]", "put together 2 stages",
    ]  # fmt: skip
    executable = found.loaded_executable_handle
    rig.array(1, (5, 6), device=2)
    assert rig.status(rig.execute(executable, [1], [50, 51])) == "ok"
    assert (rig.contents(50), rig.contents(51)) == ([7, 8], [5, 6])
    assert rig.devices.arrays[0].deleted
    rig.ask("loaded_executable_destruct", loaded_executable_handle=executable)
    assert rig.devices.log[-3:] == ["unload"] * 3
    assert not rig.session.state.executables


def test_arguments_have_to_be_where_the_first_stage_is() -> None:
    rig = SessionRig()
    executable = made(rig).compile_response.loaded_executable_handle
    rig.array(1, device=3)
    assert "an argument of pipeline is on devices (3,), not on (2,)" in rig.status(rig.execute(executable, [1]))


def test_arrays_that_only_pass_through_count_as_memory() -> None:
    rig = SessionRig(limits=SessionLimits(array_bytes=31))
    executable = made(rig).compile_response.loaded_executable_handle
    rig.array(1, device=2)
    assert rig.status(rig.execute(executable, [1], non_donatable_input_indices=[0])).startswith("RESOURCE_EXHAUSTED")
    roomy = SessionRig(limits=SessionLimits(array_bytes=40))
    executable = made(roomy).compile_response.loaded_executable_handle
    roomy.array(1, device=2)
    assert roomy.status(roomy.execute(executable, [1], non_donatable_input_indices=[0])) == "ok"


def test_each_stage_has_memory_and_costs_and_the_whole_has_none() -> None:
    rig = SessionRig()
    executable = made(rig).compile_response.loaded_executable_handle
    found = rig.answer(rig.ask("loaded_executable_mpmd_metadata", mpmd_loaded_executable_handle=executable))
    stats = found.loaded_executable_mpmd_metadata_response.mpmd_compiled_memory_stats.compiled_memory_stats
    assert {name: each.temp_size_in_bytes for name, each in stats.items()} == {"one_mesh_a": 8, "two_mesh_b": 8}
    asked = rig.ask("loaded_executable_mpmd_cost_analysis", loaded_executable_handle=executable)
    costs = rig.answer(asked).loaded_executable_mpmd_cost_analysis_response
    assert costs.status.message == "no costs"
    whole = rig.answer(rig.ask("loaded_executable_cost_analysis", loaded_executable_handle=executable))
    assert "several stages" in whole.loaded_executable_cost_analysis_response.status.message
    about = rig.answer(rig.ask("loaded_executable_metadata", loaded_executable_handle=executable))
    assert list(about.loaded_executable_metadata_response.donated_input_indices.donated_input_indices) == [0]
    plain = rig.compile()
    for name, field in (("metadata", "mpmd_loaded_executable_handle"), ("cost_analysis", "loaded_executable_handle")):
        assert "is not an MPMD program" in rig.status(rig.ask(f"loaded_executable_mpmd_{name}", **{field: plain}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"data": b"\xff\xff"}, "cannot be read"),
        ({"chosen": b"\xff\xff"}, "cannot be read"),
        ({"data": IfrtIrProgramProto(ifrt_version="0.3.0").SerializeToString()}, "in the form 'VIFRT' 0.3.0"),
        ({"chosen": options(())}, "each named once"),
        ({"chosen": options((2, 2))}, "each named once"),
        ({"chosen": options((2, 4))}, "devices, 0 to 3"),
        ({"chosen": options((2, -1))}, "devices, 0 to 3"),
        ({"chosen": options(one_mesh_a=2)}, "no compile options for the stage 'two_mesh_b'"),
        ({"chosen": options(one_mesh_a=2, two_mesh_b=2)}, "compiled for other devices than it is called on"),
        ({"chosen": options((2,))}, "compiled for other devices than it is called on"),
        ({"chosen": options(one_mesh_a=9, two_mesh_b=3)}, "device 9 is not one of this session's"),
        ({"name": "unknown"}, "it cannot be read"),
        ({"name": "wrong", "chosen": options(one_mesh_a=2)}, "it does not compile"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_left(changed: Any, says: str) -> None:
    rig = SessionRig()
    assert says in made(rig, **changed).response_metadata.status.message
    assert not rig.session.state.executables
    assert rig.session.state.compiling == 0


def test_stages_count_as_executables_and_those_of_a_client_that_has_gone_are_unloaded() -> None:
    few = SessionRig(limits=SessionLimits(executables=2))
    assert "a session may have 2 executables" in made(few).response_metadata.status.message
    rig = SessionRig(held=True)
    made(rig)
    rig.session.ended("gone")
    rig.devices.compiled()
    assert rig.devices.log[-2:] == ["unload"] * 2

"""Arrays cut otherwise: ReshardArrays, plug-in programs, donation, memory; and what a client may get wrong."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from backend.door.protocol.ifrt_messages import ArraySpecProto, DTypeProto, HloShardingProto, OpSharding
from backend.door.session.ops.plugin_programs import HEAD, MOST_BYTES
from backend.door.session.session_state import SessionLimits

from ..session_rig import F32, SessionRig, replicated, single, tiled

ALWAYS, DONATE = 1, 3
ROWS, COLUMNS, WHOLE = tiled([4, 1], [0, 1, 2, 3]), tiled([1, 2], [3, 1]), replicated([2, 0])
SQUARES = tiled([2, 2], [0, 1, 2, 3], iota_reshape_dims=[2, 2], iota_transpose_perm=[1, 0])
PAIRS = tiled([2, 1, 2], [3, 0, 2, 1], replicate_on_last_tile_dim=True)
SHARDINGS = {"rows": ROWS, "columns": COLUMNS, "whole": WHOLE, "squares": SQUARES, "pairs": PAIRS, "one": single(3)}
SHARDS = {"rows": 4, "columns": 2, "whole": 2, "squares": 4, "pairs": 4, "one": 1}
X = np.arange(16, dtype=np.float32).reshape(4, 4)
PARTS = {
    "rows": [X[0], X[1], X[2], X[3]],
    "columns": [X[:, :2], X[:, 2:]],
    "whole": [X, X],
    "squares": [X[:2, :2], X[2:, :2], X[:2, 2:], X[2:, 2:]],
    "pairs": [X[:2], X[:2], X[2:], X[2:]],
    "one": [X],
}


def spec_of(sharding: Any, shape: Sequence[int] = (4, 4), kind: int = F32) -> Any:
    spec = ArraySpecProto()
    spec.dtype.kind = kind
    spec.shape.dims.extend(shape)
    spec.sharding.CopyFrom(sharding)
    return spec


def reshard(rig: SessionRig, arrays: Sequence[int], results: Sequence[int], specs: Sequence[Any], how: int = 0) -> int:
    return rig.ask(
        "reshard_arrays", array_handles=list(arrays), result_handles=list(results), array_specs=list(specs),
        copy_semantics=how,
    )  # fmt: skip


def with_array(sharding: str = "whole", **rig: Any) -> SessionRig:
    """A session whose array 1 is X, with this sharding: put whole, and resharded."""
    found = SessionRig(**rig)
    found.session.store(9, X.tobytes())
    found.make(9, (4, 4), single())
    assert found.status(reshard(found, [9], [1], [spec_of(SHARDINGS[sharding])])) == "ok"
    found.ask("destruct_array", array_handle=[9])
    return found


def shards_of(rig: SessionRig, array: int, count: int) -> list[list[float]]:
    handles = [7000 + at for at in range(count)]
    assert (
        rig.status(rig.ask("disassemble_into_single_device_arrays", array_handle=array, result_handles=handles)) == "ok"
    )
    found = [rig.contents(each) for each in handles]
    rig.ask("destruct_array", array_handle=handles)
    return found


@pytest.mark.parametrize(("source", "target"), list(itertools.product(SHARDINGS, repeat=2)))
def test_each_device_has_its_part_of_an_array_that_is_resharded(source: str, target: str) -> None:
    rig = with_array(source)
    assert rig.status(reshard(rig, [1, 1], [5, 6], [spec_of(SHARDINGS[target])] * 2, ALWAYS)) == "ok"
    wanted = [part.reshape(-1).tolist() for part in PARTS[target]]
    assert shards_of(rig, 5, SHARDS[target]) == shards_of(rig, 6, SHARDS[target]) == wanted
    assert shards_of(rig, 1, SHARDS[source]) == [part.reshape(-1).tolist() for part in PARTS[source]]


# --- memory ------------------------------------------------------------------------------------------------


def test_a_copy_takes_the_bytes_of_what_it_becomes_and_an_array_that_stays_takes_none() -> None:
    rig = with_array("rows")
    memory = rig.session.state.memory
    assert memory.used == 64
    reshard(rig, [1], [2], [spec_of(ROWS)])
    assert memory.used == 64
    reshard(rig, [1], [3], [spec_of(WHOLE)])
    assert memory.used == 64 + 128
    reshard(rig, [3], [4], [spec_of(ROWS)])
    assert memory.used == 64 + 128 + 64
    rig.ask("destruct_array", array_handle=[1, 2, 3, 4])
    assert memory.used == 0


def test_too_much_is_refused_before_anything_moves() -> None:
    rig = with_array("rows", limits=SessionLimits(array_bytes=64 + 100))
    log = list(rig.devices.log)
    refused = rig.status(reshard(rig, [1, 1], [2, 3], [spec_of(COLUMNS), spec_of(COLUMNS)]))
    assert refused.startswith("RESOURCE_EXHAUSTED: 64 bytes more would be too much")
    assert rig.devices.log == log
    assert rig.session.state.memory.used == 64
    assert rig.status(rig.read(3)) == refused


def test_what_is_donated_is_gone_and_takes_no_memory() -> None:
    rig = with_array("rows")
    assert rig.status(reshard(rig, [1], [2], [spec_of(COLUMNS)], DONATE)) == "ok"
    assert rig.devices.log[-1] == "copy [4, 4] to [3, 1] donated"
    assert rig.session.state.memory.used == 64
    assert rig.answer(rig.ask("is_array_deleted", array_handle=1)).is_array_deleted_response.deleted
    rig.ask("destruct_array", array_handle=[1])
    assert shards_of(rig, 2, 2) == [part.reshape(-1).tolist() for part in PARTS["columns"]]


def test_an_array_that_is_donated_and_has_its_sharding_already_is_the_same() -> None:
    rig = with_array("rows")
    assert rig.status(reshard(rig, [1], [2], [spec_of(ROWS)], DONATE)) == "ok"
    rig.ask("destruct_array", array_handle=[1])
    assert rig.session.state.memory.used == 64
    assert shards_of(rig, 2, 4) == X.tolist()


# --- what a client may get wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (spec_of(ROWS, (16,)), "cannot be cut into [4, 1] equal shards"),
        (spec_of(WHOLE, (16,)), "an array f32[4, 4] is not resharded to f32[16]: astype and reshape change that"),
        (spec_of(WHOLE, kind=DTypeProto.KIND_S32), "is not resharded to s32[4, 4]"),
        (spec_of(WHOLE, (-4, 4)), "is not a shape that an array can have"),
        (spec_of(tiled([3, 1], [0, 1, 2])), "cannot be cut into [3, 1] equal shards"),
        (spec_of(replicated([0, 4])), "device 4 is not one of this session's"),
        (spec_of(tiled([1 << 40, 1], [0, 1])), "is not one of 2 devices"),
        (ArraySpecProto(), "are not known here"),
    ],
)
def test_what_an_array_cannot_become_is_refused(spec: Any, says: str) -> None:
    rig = with_array()
    refused = rig.status(reshard(rig, [1], [2], [spec]))
    assert says in refused
    assert refused.startswith("INVALID_ARGUMENT")
    assert rig.status(rig.read(2)) == refused
    assert "0 specs for 1 arrays" in rig.status(reshard(rig, [1], [3], []))


def test_parts_of_a_sum_and_strings_are_not_cut_otherwise() -> None:
    rig = with_array("rows")
    summed = HloShardingProto(xla_op_sharding=OpSharding(type=OpSharding.UNREDUCED))
    summed.devices.device_ids.extend([0, 1])
    target = replicated([0, 1])
    target.serialized_sharding.data = summed.SerializeToString()
    assert "parts of a sum" in rig.status(reshard(rig, [1], [2], [spec_of(target)]))


def test_nobody_reinterprets_arrays_where_they_lie() -> None:
    rig = with_array()
    refused = rig.status(rig.ask("bitcast_arrays", array_handles=[1], array_specs=[spec_of(WHOLE)], result_handles=[2]))
    assert "jax.lax.bitcast_convert_type does it" in refused
    assert rig.status(rig.read(2)) == refused


# --- plug-in programs --------------------------------------------------------------------------------------


def said(name: str) -> dict[str, Any]:
    """A sharding, as pathwaysutils writes it."""
    if name == "one":
        return {"devices": {"device_ids": [3]}, "xla_hlo_sharding": ""}
    proto = HloShardingProto.FromString(SHARDINGS[name].serialized_sharding.data)
    serialized = base64.b64encode(proto.xla_op_sharding.SerializeToString()).decode()
    return {
        "devices": {"device_ids": list(proto.devices.device_ids)}, "xla_hlo_sharding": serialized,
        "memory_kind": "device",
    }  # fmt: skip


def asked(source: str = "rows", target: str = "columns", donate: bool = False) -> dict[str, Any]:
    return {"reshardRequest": {"donateInput": donate, "inSharding": [said(source)], "outSharding": [said(target)]}}


def plugin(rig: SessionRig, program: Any) -> int:
    data = program if isinstance(program, bytes) else HEAD + json.dumps(program).encode()
    return rig.compile(
        data, program__type_name="xla::ifrt::PluginProgram", compile_options__data=b"",
        compile_options__type_name="xla::ifrt::PluginCompileOptions",
    )  # fmt: skip


def test_a_plugin_program_reshards_and_its_first_run_says_what_it_has_made() -> None:
    rig = with_array("rows")
    executable = plugin(rig, asked())
    compiled = rig.sent[-1].compile_response
    assert (list(compiled.addressable_device_ids), compiled.name) == ([0, 1, 2, 3], "reshard")
    assert rig.status(rig.ask("check_future", future_handle=compiled.ready_future_handle)) == "ok"
    about = rig.answer(rig.ask("loaded_executable_metadata", loaded_executable_handle=executable))
    about = about.loaded_executable_metadata_response
    assert about.parameter_layouts_error.code == about.output_memory_kinds.status.code != 0
    run = rig.answer(rig.execute(executable, [1], fill_status=True)).loaded_executable_execute_response
    (output,) = run.outputs
    assert (list(output.shape.dims), output.dtype.kind) == ([4, 4], F32)
    assert output.sharding.serialized_sharding.type_name == "xla::ifrt::HloSharding"
    asks = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=run.status_handle)
    assert rig.status(asks) == "ok"
    assert rig.status(rig.execute(executable, [1], [5])) == "ok"
    wanted = [part.reshape(-1).tolist() for part in PARTS["columns"]]
    assert shards_of(rig, output.array_handle, 2) == shards_of(rig, 5, 2) == wanted
    text = rig.answer(rig.ask("loaded_executable_human_readable_program_text", loaded_executable_handle=executable))
    assert "nothing to tell" in text.loaded_executable_human_readable_program_text_response.status.message
    rig.ask("loaded_executable_destruct", loaded_executable_handle=executable)
    plugin(rig, asked())
    rig.session.ended("it has gone")
    assert "unload" not in rig.devices.log


def test_simulated_devices_tell_their_time_and_others_say_that_they_have_none() -> None:
    rig = SessionRig()
    assert plugin(rig, {"clockRequest": {}}) == 0
    assert "time.perf_counter() is that of these" in rig.status(rig.sent[-1].response_metadata.op_id)
    rig.devices.clock = 5 * 2**32 + 3
    executable = plugin(rig, {"clockRequest": {}})
    run = rig.answer(rig.execute(executable, [], [4])).loaded_executable_execute_response
    assert not run.outputs
    words = np.array(rig.contents(4), np.float32).view(np.uint32)
    assert words.tolist() == [3, 5]


def test_a_plugin_program_takes_what_it_is_given_if_that_is_donated() -> None:
    rig = with_array("rows")
    executable = plugin(rig, asked(donate=True))
    about = rig.answer(rig.ask("loaded_executable_metadata", loaded_executable_handle=executable))
    donated = about.loaded_executable_metadata_response.donated_input_indices.donated_input_indices
    assert list(donated) == [0]
    assert rig.status(rig.execute(executable, [1], [2])) == "ok"
    assert rig.session.state.memory.used == 64
    assert rig.answer(rig.ask("is_array_deleted", array_handle=1)).is_array_deleted_response.deleted


def test_a_run_of_a_plugin_program_waits_for_its_arrays_and_fails_with_them() -> None:
    rig = with_array("rows", held=False)
    executable = plugin(rig, asked())
    rig.devices.held = True
    run = rig.answer(rig.execute(executable, [1], [2], fill_status=True, result_status_handle=8))
    assert run.loaded_executable_execute_response.status_handle == 8
    waits = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=8)
    assert rig.status(waits) == "-"
    rig.devices.ready()
    assert rig.status(waits) == "ok"
    wrong = rig.status(rig.execute(executable, [1, 1], [3, 4], fill_status=True, result_status_handle=9))
    assert "reshard has 1 parameters and 1 results, not 2 and 2" in wrong
    again = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=9)
    assert [rig.status(again), rig.status(rig.read(3))] == [wrong] * 2


def changed(**fields: Any) -> dict[str, Any]:
    program = asked()
    program["reshardRequest"]["outSharding"][0] |= fields
    return program


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (b"{}", "is not JSON with one key"),
        (HEAD, "is not JSON with one key"),
        (HEAD + b"[" * 100_000, "is not JSON with one key"),
        (HEAD + b"1" * 10_000, "is not JSON with one key"),
        (HEAD + b"\xff", "is not JSON with one key"),
        (HEAD + b" " * MOST_BYTES, "bytes, but at most"),
        ({**asked(), "more": 1}, "is not JSON with one key"),
        ({"reshardRequest": []}, "is no JSON object"),
        ({"reshardRequest": {}}, "'inSharding' of a plug-in program is no list"),
        ({"reshardRequest": asked()["reshardRequest"] | {"outSharding": []}}, "is no list of one or more"),
        ({"reshardRequest": asked()["reshardRequest"] | {"outSharding": [said("one")] * 2}}, "1 arrays cannot"),
        ({"reshardRequest": asked()["reshardRequest"] | {"donateInput": 1}}, "neither true nor false"),
        (changed(devices=7), "'devices' of a plug-in program is no JSON object"),
        (changed(devices={"device_ids": "01"}), "is no list"),
        (changed(devices={"device_ids": [True, 1.0]}), "are no numbers"),
        (changed(devices={"device_ids": [0, 1 << 70]}), "is not one of this session's"),
        (changed(devices={"device_ids": [0, -1]}), "is not one of this session's"),
        (changed(devices={"device_ids": [1, 1]}), "names a device twice"),
        (changed(devices={"device_ids": [1]}), "is not one of 1 devices"),
        (changed(xla_hlo_sharding=None), "is no text"),
        (changed(xla_hlo_sharding="*"), "cannot be read"),
        (changed(xla_hlo_sharding="/////w=="), "cannot be read"),
        (changed(memory_kind=["device"]), "is no text"),
        ({"profileRequest": {}}, "makes a span of each run"),
        ({"x" * 1000: {}}, "only reshardRequest"),
    ],
)  # fmt: skip
def test_plugin_programs_that_make_no_sense_are_refused(program: Any, says: str) -> None:
    rig = SessionRig()
    assert plugin(rig, program) == 0
    refused = rig.status(1)
    assert says in refused
    assert "Bad PluginProgram" not in refused  # pathwaysutils takes that for servers that are too old
    assert len(refused) < 400
    assert rig.devices.log == []


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("columns", "rows", "is on devices (0, 1, 2, 3), and was said to be on (3, 1)"),
        ("rows", "three", "cannot be cut into [3, 1] equal shards"),
        ("rows", "deep", "cannot be cut into [1, 1, 2] equal shards"),
    ],
)
def test_arrays_that_are_not_what_a_plugin_program_takes_are_refused(source: str, target: str, says: str) -> None:
    rig = with_array("rows")
    program = asked(source)
    if target in ("three", "deep"):
        grid, ids = {"three": ([3, 1], [0, 1, 2]), "deep": ([1, 1, 2], [0, 1])}[target]
        proto = HloShardingProto.FromString(tiled(grid, ids).serialized_sharding.data)
        serialized = base64.b64encode(proto.xla_op_sharding.SerializeToString()).decode()
        program["reshardRequest"]["outSharding"] = [{"devices": {"device_ids": ids}, "xla_hlo_sharding": serialized}]
    executable = plugin(rig, program)
    assert executable
    refused = rig.status(rig.execute(executable, [1], [2]))
    assert says in refused
    assert rig.status(rig.read(2)) == refused

"""Requests of Orbax to save and restore: what a session asks of devices, and what it refuses before they are asked."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.door.protocol.ifrt_messages import OpSharding
from backend.door.session.session_state import SessionLimits

from ..session_rig import SessionRig
from .test_resharding import plugin, said, shards_of, with_array


def text(given: str) -> str:
    return base64.b64encode(given.encode()).decode()


def asked(folder: Path | str, name: str = "w", **fields: Any) -> dict[str, Any]:
    cut = said("columns")
    return {
        "b64_location": text(str(folder)), "b64_name": text(name), "shape": [4, 4], "devices": cut["devices"],
        "b64_hlo_sharding_string": cut["xla_hlo_sharding"],
        "timeout": {"seconds": 3600, "nanos": 0}, **fields,
    }  # fmt: skip


def write(*bodies: dict[str, Any]) -> dict[str, Any]:
    return {"bulk_persistence_write_request": {"write_requests": list(bodies)}}


def read(*bodies: dict[str, Any]) -> dict[str, Any]:
    shape = {"xla_primitive_type_str": "F32", "dimensions": [4, 4]}
    return {"bulk_persistence_read_request": {"read_requests": [{**each, "shape": shape} for each in bodies]}}


def rig_of(folder: Path | None) -> SessionRig:
    rig = with_array("columns")
    object.__setattr__(rig.session.state, "limits", SessionLimits(persist=folder))
    return rig


def test_arrays_are_saved_and_restored_by_whoever_has_them(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    saving = plugin(rig, write(asked(tmp_path / "1")))
    run = rig.answer(rig.execute(saving, [1], fill_status=True)).loaded_executable_execute_response
    assert not run.outputs
    waits = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=run.status_handle)
    assert rig.status(waits) == "ok"
    shape = {"xla_primitive_type_str": "F32", "dimensions": [4, 4]}
    restoring = plugin(rig, {"persistenceReadRequest": asked(f"file://{tmp_path}/1", shape=shape)})
    used = rig.session.state.memory.used
    run = rig.answer(rig.execute(restoring, [], fill_status=True)).loaded_executable_execute_response
    assert [list(each.shape.dims) for each in run.outputs] == [[4, 4]]
    assert rig.devices.log[-2:] == [f"save {tmp_path}/1 w", f"restore {tmp_path}/1 w"]
    assert shards_of(rig, run.outputs[0].array_handle, 2) == shards_of(rig, 1, 2)
    assert rig.session.state.memory.used == used + 64


def test_a_save_is_over_when_all_is_on_disk(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    saving = plugin(rig, write(asked(tmp_path)))
    rig.devices.held = True
    rig.execute(saving, [1], fill_status=True, result_status_handle=8)
    waits = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=8)
    assert rig.status(waits) == "-"
    rig.devices.ready()
    assert rig.status(waits) == "ok"


def test_what_cannot_be_restored_is_an_error_under_the_results_handles(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    restoring = plugin(rig, read(asked(tmp_path, "nothing")))
    refused = rig.status(rig.execute(restoring, [], [7], fill_status=True, result_status_handle=9))
    assert "nothing is missing" in refused
    asks = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=9)
    assert [rig.status(asks), rig.status(rig.read(7))] == [refused] * 2
    assert rig.status(rig.execute(plugin(rig, write(asked(tmp_path))), [1])) == "ok"  # it goes on


def test_a_session_without_room_does_not_ask_for_what_is_read(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.session.state.memory.most = rig.session.state.memory.used + 63
    assert "RESOURCE_EXHAUSTED" in rig.status(rig.execute(plugin(rig, read(asked(tmp_path, "w"))), []))
    assert "restore" not in " ".join(rig.devices.log)
    assert rig.status(rig.execute(plugin(rig, write(asked(tmp_path))), [1])) == "ok"


UNREDUCED = base64.b64encode(OpSharding(type=OpSharding.UNREDUCED).SerializeToString()).decode()
DEVICES = {"devices": {"device_ids": [0, 1]}}
REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda at: write(asked(at / "../..")), "name a folder, without '..'"),
    (lambda at: write(asked(at, shape=[0, 2**70])), "cannot be cut as it is asked"),
    (lambda at: write(asked(at, b64_hlo_sharding_string=UNREDUCED)), "cannot be cut as it is asked"),
    (lambda at: write(asked("gs://bucket/1")), "give a folder of a file system"),
    (lambda at: write(asked("relative")), "give a folder of a file system"),
    (lambda at: write(asked(f"{at}\0")), "name a folder"),
    (lambda at: write(asked(at, "../w")), "'../w' cannot be the name of an array"),
    (lambda at: write(asked(at), asked(at)), "two arrays of one request have the same name"),
    (lambda at: write(asked(at), asked(at / "1", "v")), "in several folders"),
    (lambda at: write(asked(at), asked(at, "v", **DEVICES)), "are on different devices"),
    (lambda at: write(asked(at, shape=[4, 5])), "of shape [4, 5] cannot be cut as it is asked"),
    (lambda at: write(asked(at, shape=[-4, 4])), "cannot be cut as it is asked"),
    (lambda at: write(asked(at, shape="44")), "'shape' of a plug-in program are no numbers"),
    (lambda at: write(asked(at, devices={"device_ids": [0, 9]})), "not one of this session's"),
    (lambda at: write(asked(at, b64_name="*")), "is no text in base64"),
    (lambda at: write(asked(at, b64_location=7)), "is no text"),
    (lambda at: write(), "is no list of one or more"),
    (lambda at: {"bulk_persistence_write_request": {"write_requests": [7]}}, "is no JSON object"),
    (lambda at: {"persistenceReadRequest": asked(at)}, "does not say its type"),
    (lambda at: {"persistenceReadRequest": asked(at, shape={"xla_primitive_type_str": "F9"})}, "no type 'F9'"),
    (lambda at: {"persistenceReadRequest": asked(at, shape={"xla_primitive_type_str": "F32"})}, "are no numbers"),
]


@pytest.mark.parametrize(("program", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_requests_that_make_no_sense_are_refused_when_they_are_compiled(
    tmp_path: Path, program: Callable[[Path], Any], says: str
) -> None:
    rig = rig_of(tmp_path)
    before = list(rig.devices.log)
    refused = refusal(rig, program(tmp_path))
    assert says in refused
    assert len(refused) < 500
    assert rig.devices.log == before


def refusal(rig: SessionRig, program: Any) -> str:
    assert plugin(rig, program) == 0
    return rig.status(rig.sent[-1].response_metadata.op_id)


def test_what_goes_wrong_while_a_session_waits_lets_it_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(tmp_path)
    saving = plugin(rig, write(asked(tmp_path)))
    with monkeypatch.context() as patched:
        patched.setattr(type(rig.devices), "save", lambda *_: 1 / 0)
        assert "failed in the door: ZeroDivisionError" in rig.status(rig.execute(saving, [1]))
    assert rig.status(rig.execute(saving, [1])) == "ok"


def test_many_runs_that_are_refused_at_once_when_one_ends_are_all_answered(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    saving, restoring = plugin(rig, write(asked(tmp_path))), plugin(rig, read(asked(tmp_path, "nothing")))
    held: list[Callable[[Any], None]] = []
    rig.devices.save = lambda files, arrays, done: held.append(done)  # type: ignore[method-assign]
    first = rig.execute(saving, [1])
    others = [rig.execute(restoring, []) for _ in range(1000)]
    assert {rig.status(each) for each in (first, *others)} == {"-"}
    held[0]([])
    assert rig.status(first) == "ok"
    assert {rig.status(each) for each in others} == {"FAILED_PRECONDITION: nothing is missing"}


def test_an_array_that_is_not_what_was_said_is_refused(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    for wrong in ({"shape": [4, 8]}, {"devices": {"device_ids": [0, 1]}}):
        refused = rig.status(rig.execute(plugin(rig, write(asked(tmp_path, **wrong))), [1]))
        assert "array 'w' is f32[4, 4] on devices (3, 1), and not what was said of it" in refused


def test_a_door_without_a_folder_says_how_to_get_one() -> None:
    assert "start it with --persist FOLDER" in refusal(rig_of(None), write(asked("/tmp")))

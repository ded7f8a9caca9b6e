"""Results of a program are one entry until one of them is used alone; no client can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_shardings import ShardSpec
from backend.door.session.memory_meter import MemoryMeter
from backend.door.session.session_arrays import SERVER_MADE, ArrayRow, ArrayTable, ArrayValues
from backend.door.session.session_devices import ArrayType, StatusError
from backend.door.session.session_state import SessionLimits

from ..fake_devices import F32, FakeArray, FakeRefs
from ..session_rig import SessionRig

TYPES = [ArrayType(F32, (at,), ShardSpec((0,))) for at in range(1, 11)]


def several(meter: MemoryMeter, count: int = 10) -> ArrayValues:
    row = ArrayRow(TYPES[:count])
    return ArrayValues(row, 0, FakeRefs([FakeArray([]) for _ in range(count)]), meter.take(row.total))


@pytest.fixture
def meter() -> MemoryMeter:
    return MemoryMeter(1 << 40)


@pytest.fixture
def table(meter: MemoryMeter) -> ArrayTable:
    """Ten arrays with the handles 20 to 29, of 4 to 40 bytes."""
    found = ArrayTable(100)
    found.keep(20, several(meter))
    return found


def counts(table: ArrayTable, *handles: int, edges: tuple[int, ...] = ()) -> list[int]:
    return [held.count for held in table.named(handles, edges)]


# --- the table ------------------------------------------------------------------------------------------------


def test_what_is_named_alone_is_alone_from_then_on(table: ArrayTable) -> None:
    assert table.get(23).type == TYPES[3]
    assert counts(table, *range(20, 30)) == [3, 1, 6]
    assert len(table) == 10


def test_some_of_several_are_named_as_one(table: ArrayTable) -> None:
    assert counts(table, *range(22, 26)) == [4]
    assert counts(table, *range(20, 30)) == [2, 4, 4]
    (held,) = table.named(range(22, 26))
    assert isinstance(held, ArrayValues)
    assert held.types == tuple(TYPES[2:6])


@pytest.mark.parametrize(("handles", "wrong"), [(range(15, 25), 20), ((35, 0), 0), ((31, SERVER_MADE), SERVER_MADE)])
def test_handles_for_new_arrays_are_not_in_use_and_the_clients(
    table: ArrayTable, handles: Sequence[int], wrong: int
) -> None:
    table.check_new(range(10, 20))
    table.check_new(range(30, 35))
    with pytest.raises(StatusError, match=f"{wrong} is not a handle for a new array"):
        table.check_new(handles)


def test_there_are_no_more_than_may_be(table: ArrayTable, meter: MemoryMeter) -> None:
    for first in range(100, 190, 10):
        table.keep(first, several(meter))
    with pytest.raises(StatusError, match="a session may have 100 arrays"):
        table.check_room(1)


# --- the session ----------------------------------------------------------------------------------------------

Step = tuple[str, list[int]]
handles = st.lists(st.integers(1, 30), min_size=1, max_size=4)
runs = st.one_of(
    st.integers(1, 26).map(lambda first: list(range(first, first + 4))),
    st.lists(st.integers(1, 30), min_size=4, max_size=4),
)
steps = st.one_of(
    st.tuples(st.just("execute"), runs),
    st.tuples(st.just("keeping"), runs),
    st.tuples(st.sampled_from(("destruct", "delete", "ready", "read", "deleted")), handles),
)


def play(together: bool, script: list[Step]) -> tuple[list[Any], list[Any], int]:
    """All answers, what was read, and the bytes that are counted at the end."""
    rig = SessionRig(together=together, limits=SessionLimits(arrays=24, array_bytes=160))
    executable, seen = rig.compile(b"row"), list[Any]()
    for handle in range(1, 5):
        rig.array(handle, [handle, 0])
    following = 5
    for what, named in script:
        match what:
            case "execute" | "keeping":
                keep = {"non_donatable_input_indices": [1]} if what == "keeping" else {}
                made = range(following, following + 4)
                rig.execute(executable, named, made, fill_status=True, result_status_handle=1000, **keep)
                rig.ask("loaded_executable_fetch_execute_result", result_status_handle=1000)
                following += 4
            case "destruct":
                rig.ask("destruct_array", array_handle=named)
            case "delete":
                rig.ask("delete_array", array_handle=named)
            case "ready":
                rig.ask("check_value_ready", value_handles=named)
            case "deleted":
                rig.ask("is_array_deleted", array_handle=named[0])
            case _:
                if rig.status(rig.read(named[0])) == "ok":
                    data = rig.session.lookup(7000)
                    rig.session.forget(7000)
                    seen.append(bytes(data or b""))
    return [str(each) for each in rig.sent], seen, rig.session.state.memory.used


@given(st.lists(steps, max_size=25))
def test_a_session_says_the_same_whether_its_devices_count_results_as_one(script: list[Step]) -> None:
    assert play(True, script) == play(False, script)


def test_a_step_names_its_last_results_as_one_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SessionRig(together=True)
    seen: list[list[int]] = []
    execute = rig.devices.execute

    def noted(executable: Any, given: Any, *more: Any) -> Any:
        seen.append([getattr(each, "count", 1) for each in given])
        return execute(executable, given, *more)

    monkeypatch.setattr(rig.devices, "execute", noted)
    executable = rig.compile(b"row")
    for handle in range(1, 5):
        rig.array(handle)
    for first in (1, 5, 9):
        rig.execute(executable, range(first, first + 4), range(first + 4, first + 8))
    assert seen == [[1] * 4, [1, 2, 1], [1, 2, 1]]  # the second and the third are donated
    assert rig.contents(14) == [4.0, 5.0]


def test_results_that_wait_are_waited_for_after_they_are_taken_apart() -> None:
    rig = SessionRig(together=True, held=True)
    executable = rig.compile(b"row")
    rig.devices.compiled()
    (compiled,) = [each for each in rig.sent if each.HasField("compile_response")]
    executable = compiled.compile_response.loaded_executable_handle
    for handle in range(1, 5):
        rig.array(handle)
    rig.execute(executable, [1, 2, 3, 4], [5, 6, 7, 8])
    waits = rig.ask("check_value_ready", value_handles=[5, 6, 7, 8])
    rig.ask("destruct_array", array_handle=[6])
    assert rig.status(waits) == "-"
    rig.devices.ready()
    assert rig.status(waits) == "ok"


def test_arrays_are_dropped_together_in_whatever_order_they_are_named(
    table: ArrayTable, meter: MemoryMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[int] = []
    part = FakeRefs.part

    def noted(refs: FakeRefs, at: int) -> FakeRefs:
        cuts.append(at)
        return part(refs, at)

    monkeypatch.setattr(FakeRefs, "part", noted)
    table.forget([29, 28, 27, 26])
    table.forget([25, 24, 23, 22, 21, 20, 20])
    assert cuts == [6]
    assert (meter.used, len(table)) == (0, 0)

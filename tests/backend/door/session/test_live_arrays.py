"""Numbers for the lines of a client's program: each comes back as often as it came, and not while an array of it lives.

A client whose number comes back too often ends its process, and one that gets it too early cannot say who made what.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.door.protocol.ifrt_messages import DTypeProto, ObjectStoreDumpProto, ShapeProto, StatusCode
from backend.door.session.live_arrays import DUMP, MOST
from backend.door.session.session_state import SessionLimits

from ..session_rig import F32, SessionRig, single, tiled

LINES = st.integers(0, 3)  # 0: the request has no number
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "cut", "run", "taking", "row", "apart", "copy", "drop", "delete", "wrong", "wait"]),
        LINES, st.integers(0, 1 << 30),
    ),
    max_size=40,
)  # fmt: skip


class Client:
    """Knows which of its requests each array is made by, and what came back. A request is named by its number."""

    def __init__(self, together: bool) -> None:
        self.rig = SessionRig(together=together, limits=SessionLimits(array_bytes=160))
        self.programs = {name: self.rig.compile(name.encode()) for name in ("one_more", "taking", "row")}
        self.sent: Counter[int] = Counter()
        self.made: dict[int, set[int]] = {}  # array -> its requests
        self.line_of: dict[int, int] = {}  # request -> its line
        self.next = 100

    def new(self, count: int = 1) -> list[int]:
        self.next += count
        return list(range(self.next - count, self.next))

    def ask(self, name: str, line: int, made: list[int] = [], of: list[int] | None = None, **fields: Any) -> bool:  # noqa: B006
        """`made`: arrays that it makes, in memory of the arrays `of`; without these, in its own."""
        number = self.rig.ask(name, context=line, **fields)
        self.line_of[number] = line
        if line:
            self.sent[line] += 1
        fine = self.rig.status(number) == "ok"
        for each in made if fine else ():
            self.made[each] = {number} if of is None else set().union(*(self.made[one] for one in of))
        return fine

    def put(self, line: int, devices: int = 1) -> None:
        (handle,) = self.new()
        self.rig.session.store(handle, b"12345678" * devices)
        sharding = single() if devices == 1 else tiled([2], [0, 1])
        if devices == 1:
            self.ask(
                "make_array_from_host_buffer", line, [handle], dtype=DTypeProto(kind=F32), shape=ShapeProto(dims=[2]),
                sharding=sharding, host_buffer_handle=handle, array_handle=handle,
            )  # fmt: skip
            return
        (one, two), (whole,) = self.new(2), self.new()
        for at, each in enumerate((one, two)):
            self.rig.session.store(each, b"12345678")
            self.ask(
                "make_array_from_host_buffer", line, [each], dtype=DTypeProto(kind=F32), shape=ShapeProto(dims=[2]),
                sharding=single(at), host_buffer_handle=each, array_handle=each,
            )  # fmt: skip
        if one in self.made and two in self.made:
            self.ask(
                "assemble_array_from_single_device_arrays", line, [whole], of=[one, two], dtype=DTypeProto(kind=F32),
                shape=ShapeProto(dims=[4]), sharding=sharding, single_device_array_handles=[one, two],
                result_handle=whole,
            )  # fmt: skip

    def step(self, kind: str, line: int, draw: int) -> None:
        known = sorted(self.made)
        one = known[draw % len(known)] if known else 1
        match kind:
            case "put":
                self.put(line)
            case "cut":
                self.put(line, 2)
            case "run" | "taking" | "row":
                count = 4 if kind == "row" else 1
                given = (known * 4)[draw % (len(known) or 1) :][:count]
                handles = self.new(count)
                self.ask(
                    "loaded_executable_execute", line, handles, result_array_handle=handles, args_handles=given,
                    loaded_executable_handle=self.programs["one_more" if kind == "run" else kind],
                )  # fmt: skip
            case "apart":
                handles = self.new(2)
                self.ask(
                    "disassemble_into_single_device_arrays", line, handles, of=[one] if known else [],
                    array_handle=one, result_handles=handles,
                )  # fmt: skip
            case "copy":
                handles = self.new()
                self.ask(
                    "copy_arrays", line, handles, array_handles=[one], result_handles=handles, device_ids=[1],
                    copy_semantics=1,
                )  # fmt: skip
            case "drop":
                self.drop(known[draw % (len(known) or 1) :][: 1 + draw % 3], line)
            case "delete":
                self.ask("delete_array", line, array_handle=[one])
            case "wait":
                self.ask("check_value_ready", line, value_handles=[one])
            case _:
                self.ask("check_future", line, future_handle=draw)

    def drop(self, arrays: list[int], line: int = 0) -> None:
        for each in arrays:
            del self.made[each]
        self.ask("destruct_array", line, array_handle=arrays)

    def check(self) -> Counter[int]:
        """What is still to come back: at least what has arrays that live."""
        back = Counter(each for answer in self.rig.sent for each in answer.response_metadata.destroyed_user_context_ids)
        living = {each for requests in self.made.values() for each in requests}
        alive = Counter(self.line_of[each] for each in living if self.line_of[each])
        missing = Counter(self.sent)
        missing.subtract(back)
        assert all(missing[line] >= alive[line] for line in {*missing, *alive}), (self.sent, back, alive)
        return +missing


@given(st.booleans(), STEPS)
def test_a_line_comes_back_as_often_as_it_was_sent_and_never_while_an_array_of_it_lives(
    together: bool, steps: list[tuple[str, int, int]]
) -> None:
    client = Client(together)
    for kind, line, draw in steps:
        client.step(kind, line, draw)
        client.check()
    client.drop(sorted(client.made))
    client.ask("check_future", 0, future_handle=1)
    assert not client.check(), "some never come back"


def test_results_that_are_counted_as_one_hold_their_line_until_the_last_is_gone() -> None:
    client = Client(together=True)
    for _ in range(4):
        client.put(1)
    given, made = sorted(client.made), client.new(4)
    assert client.ask(
        "loaded_executable_execute", 2, made, result_array_handle=made, args_handles=given,
        loaded_executable_handle=client.programs["row"],
    )  # fmt: skip
    for each in (made[2], made[0], made[3]):
        client.drop([each], 3)
        assert client.check() == {1: 4, 2: 1}
    client.drop([made[1]], 3)
    assert client.check() == {1: 4}


def full(rig: SessionRig, wait: str, **fields: Any) -> Any:
    """The answer to a wait for what there was no room for."""
    program = rig.compile(b"one_more")
    rig.ask(
        "loaded_executable_execute", context=9, loaded_executable_handle=program, args_handles=[1],
        result_array_handle=[50],
    )  # fmt: skip
    rig.ask(wait, **fields)
    return rig.sent[-1].response_metadata


def test_who_waits_for_what_has_no_room_is_told_what_lives_and_by_which_line() -> None:
    client = Client(together=False)
    for line in (7, 7, 8):
        for _ in range(6):
            client.put(line)
    client.ask("copy_arrays", 5, [400], array_handles=[100], result_handles=[400], device_ids=[1], copy_semantics=1)
    rig = client.rig
    refused = full(rig, "check_value_ready", value_handles=[50])
    assert refused.status.code == StatusCode.INVALID_ARGUMENT  # an argument that there never was
    assert not refused.status.payload
    told = full(client.rig, "copy_to_host_buffer", array_handle=400, host_buffer_handle=1)
    assert not told.status.payload
    client.put(8)
    client.put(8)
    client.put(8)
    told = full(client.rig, "check_value_ready", value_handles=[client.next - 1])
    assert told.status.code == StatusCode.RESOURCE_EXHAUSTED
    dump = ObjectStoreDumpProto.FromString(told.status.payload[DUMP]).dump
    lines = {
        each.error_context_id: [(row.creator, row.ready_obj_count, row.ready_total_size) for row in each.per_creator]
        for each in dump.per_error_context
    }
    assert lines == {
        7: [("make_array_from_host_buffer", 12, 96)], 8: [("make_array_from_host_buffer", 7, 56)],
        5: [("copy_arrays", 1, 8)],
    }  # fmt: skip
    assert not dump.warning


def test_the_lines_with_the_most_memory_are_told() -> None:
    client = Client(together=False)
    client.rig.session.state.memory.most = 8 * 2 * MOST
    for line in range(1, 2 * MOST + 1):
        client.put(line)
    client.put(1)
    client.rig.ask("check_value_ready", value_handles=[client.next - 1])
    status = client.rig.sent[-1].response_metadata.status
    dump = ObjectStoreDumpProto.FromString(status.payload[DUMP]).dump
    assert len(dump.per_error_context) == MOST
    assert dump.warning == f"{MOST} lines with less memory are left out"

"""A session: order of arrival, numbers of answers, handles, errors that travel with them, and what holds it up."""

from __future__ import annotations

from backend.door.protocol.ifrt_messages import ArraySpecProto, StatusCode, StatusProto
from backend.door.session.session_arrays import SERVER_MADE
from backend.door.session.session_devices import StatusError
from backend.door.session.session_state import SessionLimits

from ..session_rig import SessionRig, single

CODE = StatusCode


# --- beginning --------------------------------------------------------------------------------------------


def test_the_first_answer_says_which_devices_there_are() -> None:
    rig = SessionRig(count=2)
    found = rig.answer(rig.ask("init")).init_response
    assert (found.session_id, found.platform_name, found.process_index) == (rig.session_id, "cpu", 0)
    assert [device.id for device in found.all_devices] == [0, 1]
    assert list(found.primary_device_ids) == list(found.addressable_device_ids) == [0, 1]
    assert [(each.to_string, each.debug_string) for each in found.all_devices] == [
        ("FAKE:0", "fake device 0"), ("FAKE:1", "fake device 1"),
    ]  # fmt: skip
    assert [(memory.id, list(memory.device_ids)) for memory in found.memories] == [(0, [0]), (1, [1])]
    assert found.client_attributes.attributes["serialize_with_sdy"].bool_value
    assert not found.client_attributes.attributes["supports_executable_serialization"].bool_value


# --- numbers ----------------------------------------------------------------------------------------------


def test_answers_that_succeed_are_numbered_without_gaps_but_for_deletions() -> None:
    rig = SessionRig()
    rig.array(1)
    rig.ask("destruct_array", array_handle=[99])
    rig.ask("check_value_ready", value_handles=[98])  # there is none
    rig.ask("check_value_ready", value_handles=[1])
    future = rig.answer(rig.ask("delete_array", array_handle=[1])).delete_array_response.deletion_future_handle
    rig.ask("check_future", future_handle=future)
    rig.ask("is_array_deleted", array_handle=1)
    assert rig.lines() == [
        "1 make_array_from_host_buffer #0",
        "2 destruct_array #0",
        "3 INVALID_ARGUMENT",
        "4 check_value_ready #1",
        "5 delete_array #0",
        "6 check_future #0",
        "7 is_array_deleted #2",
    ]


def test_a_compilations_future_is_numbered_and_asked_for_once() -> None:
    rig = SessionRig()
    rig.compile()
    future = rig.sent[0].compile_response.ready_future_handle
    assert rig.status(rig.ask("check_future", future_handle=future)) == "ok"
    assert "has been asked for before" in rig.status(rig.ask("check_future", future_handle=future))
    assert rig.lines() == ["1 compile #0", "2 check_future #1", "3 INVALID_ARGUMENT"]


def test_each_context_of_a_user_comes_back_exactly_as_often_as_it_came() -> None:
    rig = SessionRig()
    for context in (5, 5, 0, 6):
        rig.ask("destruct_array", context=context, array_handle=[1])
    rig.ask("copy_arrays", context=7, array_handles=[33], result_handles=[34])  # fails
    came = [list(each.response_metadata.destroyed_user_context_ids) for each in rig.sent]
    assert came == [[5], [5], [], [6], [7]]


# --- order ------------------------------------------------------------------------------------------------


def test_requests_wait_behind_one_whose_host_buffer_has_not_come() -> None:
    rig = SessionRig()
    made = rig.make(1, (2,), single())
    waits, gone = rig.ask("check_value_ready", value_handles=[1]), rig.ask("destruct_array", array_handle=[1])
    assert [rig.status(each) for each in (made, waits, gone)] == ["-", "-", "-"]
    rig.session.store(1, b"\0" * 8)
    assert rig.lines() == ["1 make_array_from_host_buffer #0", "2 check_value_ready #1", "3 destruct_array #0"]
    assert not rig.session.state.arrays
    assert not len(rig.session.state.incoming)


def test_buffers_may_come_before_their_requests_in_any_order() -> None:
    rig = SessionRig()
    for handle in (3, 1, 2):
        rig.session.store(handle, bytes([0, 0, 128, 63]) * handle)  # 1.0
    for handle in (1, 2, 3):
        rig.make(handle, (handle,), single())
        assert rig.contents(handle) == [1.0] * handle


def test_a_compilation_holds_up_nothing() -> None:
    rig = SessionRig(held=True)
    assert rig.compile() == 0
    made = rig.array(1)
    assert rig.status(made) == "ok"
    rig.devices.compiled()
    assert rig.lines() == ["2 make_array_from_host_buffer #0", "1 compile #1"]


def test_answers_come_when_results_are_there_in_any_order() -> None:
    rig = SessionRig(held=True)
    rig.array(1)
    waits, read = rig.ask("check_value_ready", value_handles=[1]), rig.read(1)
    rig.ask("init")
    assert [rig.status(waits), rig.status(read)] == ["-", "-"]
    rig.devices.ready()
    assert rig.lines() == [
        "1 make_array_from_host_buffer #0",
        "4 init #1",
        "2 check_value_ready #2",
        "3 copy_to_host_buffer #3",
    ]


# --- handles and errors -----------------------------------------------------------------------------------


def test_an_error_stays_under_the_handles_that_the_client_chose_and_travels_on() -> None:
    rig = SessionRig()
    executable = rig.compile()
    first = rig.make(1, (3,), single())  # three elements, but
    rig.session.store(1, b"\0" * 8)  # only two come
    assert "more than the 8 bytes" in rig.status(first)
    second = rig.execute(executable, [1], [2])
    third = rig.ask("copy_arrays", array_handles=[2], result_handles=[3])
    wanted = rig.status(first)
    assert [rig.status(second), rig.status(third), rig.status(rig.read(3))] == [wanted] * 3
    assert rig.status(rig.ask("check_value_ready", value_handles=[2])) == wanted
    assert "execute" not in rig.devices.log
    assert not len(rig.session.state.incoming), "the buffer of a request that failed is dropped"


def test_an_error_of_the_computation_is_told_to_whoever_waits() -> None:
    rig = SessionRig(held=True)
    rig.array(1)
    waits, read = rig.ask("check_value_ready", value_handles=[1]), rig.read(1)
    fault = StatusError(CODE.DATA_LOSS, "the host is gone")
    rig.devices.ready(fault)
    assert [rig.status(waits), rig.status(read)] == ["DATA_LOSS: the host is gone"] * 2
    assert fault.__traceback__ is None, "its frames would keep the arrays that were read"
    assert rig.session.lookup(7000) is None


def test_arrays_that_are_errors_can_be_made() -> None:
    rig = SessionRig()
    rig.ask(
        "make_error_arrays", error=StatusProto(code=CODE.ABORTED, message="given up"),
        array_specs=[ArraySpecProto()], array_handles=[4],
    )  # fmt: skip
    assert rig.status(rig.ask("check_value_ready", value_handles=[4])) == "ABORTED: given up"


def test_the_first_run_is_answered_with_results_and_later_ones_with_nothing() -> None:
    rig = SessionRig()
    executable = rig.compile(b"two")
    rig.array(1, (1, 2))
    outputs = rig.answer(rig.execute(executable, [1])).loaded_executable_execute_response.outputs
    assert [list(output.shape.dims) for output in outputs] == [[2], [2]]
    handles = [output.array_handle for output in outputs]
    assert all(handle >= SERVER_MADE for handle in handles)
    assert [rig.contents(handle) for handle in handles] == [[2, 3], [2, 4]]
    later = rig.answer(rig.execute(executable, handles[:1], [10, 11])).loaded_executable_execute_response
    assert not later.outputs
    assert later.status_handle == 0
    assert [rig.contents(10), rig.contents(11)] == [[3, 4], [4, 6]]


def test_handles_that_are_in_use_or_the_servers_cannot_be_chosen() -> None:
    rig = SessionRig()
    executable = rig.compile()
    rig.array(1)
    for handle in (1, SERVER_MADE + 5):
        assert "is not a handle for a new array" in rig.status(rig.execute(executable, [1], [handle]))
    assert rig.contents(1) == [1, 2]


def test_results_may_be_destructed_without_being_used_and_arguments_may_repeat() -> None:
    rig = SessionRig()
    copies = rig.ask("copy_arrays", array_handles=[1, 1], result_handles=[2, 3])
    assert "there is no array 1" in rig.status(copies)
    rig.array(1)
    rig.ask("destruct_array", array_handle=[2, 3])
    assert rig.status(rig.ask("copy_arrays", array_handles=[1, 1], result_handles=[2, 3])) == "ok"
    assert rig.contents(2) == rig.contents(3) == [1, 2]


def test_arguments_that_a_call_does_not_give_away_are_named_to_the_devices() -> None:
    rig = SessionRig()
    executable = rig.compile(b"taking")
    rig.array(1)
    rig.execute(executable, [1], [2], non_donatable_input_indices=[0])
    assert rig.contents(1) == [1, 2]
    rig.execute(executable, [1], [3])
    assert "Array has been deleted" in rig.status(rig.execute(executable, [1], [4]))
    assert rig.devices.log[-3:] == ["execute keeping [0]", "execute", "execute"]


def test_a_run_whose_status_is_asked_for_is_told_once() -> None:
    rig = SessionRig(held=True)
    rig.compile()
    rig.devices.compiled()
    executable = rig.sent[-1].compile_response.loaded_executable_handle
    rig.array(1)
    run = rig.answer(rig.execute(executable, [1], [2], fill_status=True, result_status_handle=9))
    assert run.loaded_executable_execute_response.status_handle == 9
    asked = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=9)
    assert rig.status(asked) == "-"
    rig.devices.ready()
    assert rig.status(asked) == "ok"
    again = rig.ask("loaded_executable_fetch_execute_result", result_status_handle=9)
    assert "has been asked for before" in rig.status(again)


# --- what holds it up -------------------------------------------------------------------------------------


def test_nothing_is_executed_while_devices_have_too_much_under_way() -> None:
    rig = SessionRig(most=2)
    executable = rig.compile()
    rig.array(1)
    rig.execute(executable, [1], [2])
    rig.execute(executable, [2], [3])
    assert not rig.busy()
    third, read = rig.execute(executable, [3], [4]), rig.read(4)
    assert rig.busy()
    assert [rig.status(third), rig.status(read)] == ["-", "-"]
    rig.devices.room()
    assert [rig.status(third), rig.status(read)] == ["ok", "ok"]
    assert rig.resumed == 1
    assert not rig.busy()


def test_a_long_queue_makes_it_busy_until_it_is_gone() -> None:
    rig = SessionRig(limits=SessionLimits(queued=3))
    rig.make(1, (1,), single())
    rig.ask("init")
    assert not rig.busy()
    rig.ask("init")
    assert rig.busy()
    rig.session.store(1, b"\0" * 4)
    assert not rig.busy()
    assert rig.resumed == 1
    assert len(rig.sent) == 3


def test_many_answers_that_wait_make_it_busy() -> None:
    rig = SessionRig(held=True, limits=SessionLimits(waits=2))
    rig.array(1)
    rig.ask("check_value_ready", value_handles=[1])
    assert not rig.busy()
    rig.ask("check_value_ready", value_handles=[1])
    assert rig.busy()
    rig.devices.ready()
    assert not rig.busy()
    assert rig.resumed == 1


# --- ends -------------------------------------------------------------------------------------------------


def test_a_client_that_is_gone_leaves_nothing() -> None:
    rig = SessionRig(held=True)
    rig.array(1)
    rig.compile()
    rig.session.store(50, b"left over")
    waits = rig.ask("check_value_ready", value_handles=[1])
    rig.session.ended("the connection is lost")
    state = rig.session.state
    held = (state.arrays, state.executables, state.futures, state.statuses, state.incoming, state.outgoing)
    assert [len(each) for each in held] == [0] * 6
    assert state.memory.used == 0
    assert rig.devices.closed
    rig.devices.ready()
    rig.devices.compiled()
    assert rig.status(waits) == "-"
    assert not state.executables


def test_bytes_that_are_no_request_end_the_session() -> None:
    rig = SessionRig()
    rig.session.receive(b"\xff\xff\xff")
    assert rig.ended() == "INVALID_ARGUMENT: a request cannot be read"


def test_a_request_of_an_unknown_kind_is_refused_and_the_session_goes_on() -> None:
    rig = SessionRig()
    assert "the request is empty" in rig.status(rig.receive(rig.request()))
    refused = rig.status(rig.ask("loaded_host_callback_poll"))
    assert "Python callbacks are not taken beside a program" in refused
    assert rig.status(rig.ask("init")) == "ok"
    assert rig.ended() == ""

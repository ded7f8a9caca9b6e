"""A session's programs call functions of its client's process, if the client answers."""

from __future__ import annotations

import numpy as np
import pytest

from backend.contents import callbacks
from backend.contents.callbacks import CallbackFault
from backend.door.session.session_callbacks import GONE, SessionCallbacks
from backend.door.session.session_devices import invalid

from ..session_rig import SessionRig


def given(rig: SessionRig) -> SessionCallbacks | None:
    """What the last program could call through."""
    return rig.devices.callbacks


def test_programs_may_call_only_while_the_client_answers() -> None:
    rig = SessionRig()
    rig.compile()
    assert given(rig) is None
    rig.session.callbacks.begin(lambda message: None)
    rig.compile()
    assert given(rig) is rig.session.callbacks
    rig.session.callbacks.end()
    rig.compile()
    assert given(rig) is None


def test_requests_behind_a_program_that_waits_for_its_client_wait_too_and_go_on_with_its_results() -> None:
    rig = SessionRig()
    rig.array(1)
    executable = rig.compile(b"calling")
    run = rig.execute(executable, [1], [2])
    behind = rig.read(2, 8000)
    assert (rig.status(run), rig.status(behind)) == ("-", "-")
    assert rig.busy()
    (done,) = rig.devices.waiting
    done([rig.devices.made([np.array([5, 6], np.float32)])])
    assert (rig.status(run), rig.status(behind)) == ("ok", "ok")
    assert not rig.busy()
    assert rig.contents(2) == [5, 6]


def test_a_program_whose_callback_fails_spoils_its_results() -> None:
    rig = SessionRig()
    rig.array(1)
    run = rig.execute(rig.compile(b"calling"), [1], [2])
    rig.devices.waiting[0](invalid("ValueError: no room"))
    assert rig.status(run) == "INVALID_ARGUMENT: ValueError: no room"
    assert rig.status(rig.read(2)) == "INVALID_ARGUMENT: ValueError: no room"
    assert rig.contents(1) == [1, 2]  # and the rest goes on


def test_a_mistake_of_ours_in_what_follows_is_answered_and_the_session_goes_on() -> None:
    rig = SessionRig()
    rig.array(1)
    run = rig.execute(rig.compile(b"calling"), [1], [2])
    rig.devices.waiting[0]([])  # it should have made one array
    assert rig.status(run).startswith("INTERNAL: loaded_executable_execute_request failed in the door")
    assert not rig.busy()
    assert rig.contents(1) == [1, 2]


def test_what_comes_after_the_session_is_dropped() -> None:
    rig = SessionRig()
    rig.array(1)
    run = rig.execute(rig.compile(b"calling"), [1], [2])
    rig.session.ended("the client has gone")
    rig.devices.waiting[0]([])
    assert rig.status(run) == "-"


def test_each_answer_goes_to_who_asked_once_and_who_asks_a_client_that_is_gone_hears_so() -> None:
    made, sent, came = SessionCallbacks(), list[bytes](), list[bytes]()
    assert not made.open
    made.ask(b"nobody", came.append)
    made.begin(sent.append)
    made.ask(b"one", came.append)
    made.ask(b"two", came.append)
    numbers = [callbacks.split(message) for message in sent]
    assert [body for _, body in numbers] == [b"one", b"two"]
    for number, body in reversed(numbers):
        made.answer(callbacks.NUMBER.pack(number) + b"re " + body)
        made.answer(callbacks.NUMBER.pack(number) + b"again")  # a second answer is nobody's
    assert came[1:] == [b"re two", b"re one"]
    made.ask(b"three", came.append)
    made.end()
    for answer in (came[0], came[-1]):
        with pytest.raises(CallbackFault, match=GONE):
            callbacks.results_of(answer)
    with pytest.raises(CallbackFault):
        made.answer(b"short")

"""Which calls of a client leave together."""

from __future__ import annotations

from core.client.call_batching import CallBatching
from core.client.client_limits import Limits
from core.protocol import Calls, Command, Get, Release, Send


def made() -> tuple[CallBatching, list[Command]]:
    out: list[Command] = []
    return CallBatching(Limits(), out), out


def messages(out: list[Command]) -> list[object]:
    return [each.message for each in out if isinstance(each, Send)]


def test_a_release_leaves_with_the_call_before_it_in_the_same_turn() -> None:
    calls, out = made()
    calls.call(Get(1, 7), 0)
    calls.call(Release((3,)), 0)
    assert messages(out) == [Calls((Get(1, 7), Release((3,))))]


def test_a_release_leaves_alone_in_a_turn_of_its_own() -> None:
    calls, out = made()
    calls.call(Get(1, 7), 0)
    out.clear()
    calls.call(Release((3,)), 0)
    assert messages(out) == [Release((3,))]


def test_a_call_leaves_with_the_release_before_it_in_the_same_turn() -> None:
    calls, out = made()
    calls.call(Release((3,)), 0)
    calls.call(Get(1, 7), 0)
    assert messages(out) == [Calls((Release((3,)), Get(1, 7)))]
    for request in range(2, Limits().pipe + 1):
        out.clear()
        calls.call(Get(request, 7), 0)
    out.clear()
    calls.call(Get(9, 7), 0)
    assert out == []  # so many messages are in flight
    calls.answered("get", 1)
    calls.send(0)
    assert messages(out) == [Get(9, 7)]


def test_two_calls_that_are_answered_leave_apart() -> None:
    calls, out = made()
    calls.call(Get(1, 7), 0)
    calls.call(Get(2, 7), 0)
    assert messages(out) == [Get(1, 7), Get(2, 7)]

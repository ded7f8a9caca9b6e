"""A client whose lease on the controller, or on a host, has run out: whoever waits hears of it then, and not when the
link is back."""

from __future__ import annotations

from typing import Any

from core import protocol as p
from core.client.client import Client
from core.client.client_limits import Blocked
from core.client.retries import FIRST
from core.model.place import line

from ..hostworld import SAME, layout
from .test_client import SLICE, Session, X, program
from .test_client_contents import opened, putting

SILENCE = "nothing heard for 5 s"
UNREACHABLE = p.Blame("client-lost", f"the controller is unreachable: {SILENCE}")
CUT_OFF = p.Disconnected(p.CONTROLLER, SILENCE)


def calls_of(effects: list[Any]) -> list[Any]:
    messages = [each.message for each in effects if isinstance(each, p.Send) and each.peers == (p.CONTROLLER,)]
    return [call for each in messages for call in (each.calls if isinstance(each, p.Calls) else (each,))]


def asked(session: Session, buffer: int) -> int:
    request = session.client.get(buffer, 0)
    assert isinstance(request, int)
    return request


def test_what_was_called_ends_with_the_lease() -> None:
    session = Session()
    session.program(args=0)
    run, (result,) = session.submit()
    buffer = session.put()
    request = asked(session, buffer)
    session.sent()
    assert session.hear(CUT_OFF) == [
        p.LogLine(f"the controller is out of reach: {SILENCE}"),
        p.RunEnded(run, UNREACHABLE),
        p.CallRefused("put", buffer, UNREACHABLE),
        p.CallRefused("get", request, UNREACHABLE),
        p.BuffersReady((result, buffer), UNREACHABLE),
    ]
    assert calls_of(session.hear(p.Connected(p.CONTROLLER))) == [
        p.Open("me", 2, client=7, held=(result, buffer), spoilt=(result, buffer)), p.Register(1, program(args=0)),
    ]  # fmt: skip


def test_what_has_not_left_waits_for_the_controller() -> None:
    session = Session(pipe=2)
    session.program(args=0)
    sent, (lost,) = session.submit()
    kept, (result,) = session.submit()  # the pipe is full
    buffer = session.put()
    request = asked(session, buffer)
    assert session.sent() == [p.Submit(sent, 1, (), (lost,))]
    assert calls_of(session.hear(CUT_OFF)) == []
    assert session.client.unfinished == 1
    late, (other,) = session.submit()
    assert calls_of(session.hear(p.Connected(p.CONTROLLER))) == [
        p.Open("me", 2, client=7, held=(lost,), spoilt=(lost,)), p.Register(1, program(args=0)),
            p.Submit(kept, 1, (), (result,)),
        p.Put(buffer, X, SLICE), p.Get(request, buffer), p.Submit(late, 1, (), (other,)),
    ]  # fmt: skip


def test_an_array_that_was_there_may_still_be() -> None:
    """On its hosts, if the controller was restarted. What became of it, the next controller says."""
    session = Session()
    buffer = session.put()
    session.note(p.ContentsReady((buffer,)))
    assert session.hear(CUT_OFF) == [p.LogLine(f"the controller is out of reach: {SILENCE}")]
    assert calls_of(session.hear(p.Connected(p.CONTROLLER))) == [p.Open("me", 2, client=7, held=(buffer,))]


def test_a_caller_that_was_held_back_may_call_again() -> None:
    session = Session(max_runs=1)
    session.program(args=0)
    session.submit()
    session.sent()
    assert isinstance(session.client.submit(1, (), 0), Blocked)
    assert session.hear(CUT_OFF)[-1] == p.Unblocked()


def test_a_run_with_retries_goes_again_when_the_controller_is_back() -> None:
    session = Session()
    session.program(args=0)
    run, _ = session.submit(retries=1)
    session.sent()
    assert session.hear(CUT_OFF)[1:] == [p.RunAgain(run, UNREACHABLE, 1, FIRST)]
    session.hear(p.Connected(p.CONTROLLER))
    session.now = FIRST
    assert p.Submit(2, 1, (), (2,)) in calls_of(session.hear(p.Wakeup()))


def test_a_put_under_way_is_given_up() -> None:
    client, buffer = putting()
    told = client.handle(CUT_OFF, 0)
    assert p.Sent(9) in told
    assert p.BuffersReady((buffer,), UNREACHABLE) in told


LOST = p.Blame("host-lost", f"host 0 and the client of these contents lost each other: {SILENCE}", host=0)


def getting() -> tuple[Client, int, int]:
    """A client, a buffer, and a request whose contents come as transfer 9, from host 0."""
    client, buffer = opened()
    request = client.get(buffer, 0)
    assert isinstance(request, int)
    where = layout(line(0, 0, 4), sharding=SAME)
    client.handle(p.MessageReceived(p.CONTROLLER, p.GetAccepted(request, 9, where)), 0)
    return client, buffer, request


def test_a_get_ends_when_its_host_is_silent_and_may_be_called_again() -> None:
    client, buffer, request = getting()
    assert client.handle(p.Disconnected(0, SILENCE), 0) == [p.Received(9, LOST, request)]
    assert isinstance(client.get(buffer, 0), int)


def test_a_get_is_asked_again_when_its_host_has_begun_anew() -> None:
    client, buffer, request = getting()
    client.handle(p.MessageReceived(0, p.Offer(9, 0, -3, ((0, 32),))), 0)
    told = client.handle(p.Disconnected(0, SILENCE, anew=True), 0)
    assert p.GetAgain(request, 9, LOST) in told
    assert p.Get(2, buffer) in calls_of(told)

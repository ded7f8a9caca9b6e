"""A client: it names results at once, batches small calls, ends each run once, and its errors name the fix."""

from __future__ import annotations

from typing import Any

import pytest

from core import protocol as p
from core.client.client import Client
from core.client.client_limits import Blocked, Limits, Submitted
from core.model.errors import Illegal
from core.model.place import line
from core.model.plan import Layout
from core.model.program import Arg, Program, Sharding, SliceSpec, Value

from ..hostworld import Cluster
from .test_client_contents import of_contents

SLICE = SliceSpec("s", 1)
X = Value((4,), "float32")
WHERE = Layout((4,), "float32", line(0, 0, 1), (1,), Sharding())
BAD = p.Blame("user", "boom")


def program(args: int = 1, results: int = 1, donate: tuple[int, ...] = ()) -> Program:
    return Program("f", (SLICE,), (), (X,) * args, (), (Arg(0),) * results, donate)


class Session:
    """A client whose connection is open, and what it sent."""

    def __init__(self, connected: bool = True, **limits: int) -> None:
        self.client = Client("me", Cluster(), weight=2, limits=Limits(**{"get_retries": 0} | limits))
        self.now = 0
        if connected:
            self.hear(p.Connected(p.CONTROLLER))
            assert self.note(p.Opened(7, 0)) == []

    def hear(self, event: p.Event) -> list[p.Command]:
        """Give the client a message. Returns what it says to its user and to the controller, but not its orders for
        contents."""
        return [each for each in self.client.handle(event, self.now) if not of_contents(each)]

    def note(self, *notes: Any) -> list[p.Command]:
        return self.hear(p.MessageReceived(p.CONTROLLER, notes[0] if len(notes) == 1 else p.ClientMessages(notes)))

    def sent(self) -> list[Any]:
        """Messages that left because of the calls just made."""
        return [effect.message for effect in self.hear(p.CallsMade()) if isinstance(effect, p.Send)]

    def program(self, **more: Any) -> int:
        name = self.client.register(program(**more), self.now)
        assert isinstance(name, int)
        self.sent()
        return name

    def submit(self, *args: int | bytes, of: int = 1, **more: Any) -> Submitted:
        found = self.client.submit(of, args, self.now, **more)
        assert isinstance(found, Submitted)
        return found

    def put(self) -> int:
        found = self.client.put(X, SLICE, self.now)
        assert isinstance(found, int)
        return found


# --- calls ------------------------------------------------------------------------------------------------


def test_results_have_names_at_once_and_the_call_leaves_at_once() -> None:
    session = Session()
    assert session.client.register(program(), 0) == 1
    assert session.submit(b"x" * 16) == (1, (1,))
    assert session.submit(1) == (2, (2,))
    assert session.sent() == [p.Register(1, program()), p.Submit(1, 1, (b"x" * 16,), (1,)), p.Submit(2, 1, (1,), (2,))]


def test_unwanted_results_have_no_name() -> None:
    session = Session()
    session.program(results=3)
    assert session.submit(b"x" * 16, keep=(True, False, True)).results == (1, 0, 2)


def test_a_call_records_how_long_it_waited_and_how_long_its_user_thought() -> None:
    session = Session()
    session.program(args=0)
    runs = [session.submit().run for _ in range(2)]
    session.note(p.Ended(1), p.Ended(2))
    session.client.waited(runs[1], 50)
    session.client.waited(runs[0], 70)
    session.sent()
    session.now = 100
    session.submit()
    session.now = 130
    session.submit()
    first, second = session.sent()
    assert (first.waited, first.think) == ((2, 1), 30)
    assert (second.waited, second.think) == ((), 30)


def test_a_put_and_a_get_are_announced_and_their_contents_travel_separately() -> None:
    session = Session()
    buffer = session.put()
    request = session.client.get(buffer, 0)
    assert isinstance(request, int)
    assert session.sent() == [p.Put(buffer, X, SLICE), p.Get(request, buffer)]
    assert session.note(p.PutAccepted(buffer, 40, WHERE)) == [p.PutStarted(buffer, 40, WHERE)]
    assert session.note(p.ContentsReady((buffer,)), p.GetAccepted(request, 41, WHERE)) == [
        p.BuffersReady((buffer,)),
        p.GetStarted(request, 41, WHERE),
    ]


def test_waits_reported_by_the_controller_are_put_into_words() -> None:
    session = Session()
    assert session.note(p.Waiting(3, "memory"), p.Stalled(3, "f", "mul", "pod", ((4, 6),), "no answer")) == [
        p.LogLine("run 3 waits: memory", passing=True),
        p.LogLine(
            "run 3 is late: program 'f', node 'mul' on island 'pod': no answer; hosts 4-5 have not arrived",
            passing=True,
        ),
    ]


def test_cancel_is_sent_once_and_the_run_still_ends() -> None:
    session = Session()
    session.program(args=0)
    run = session.submit().run
    session.client.cancel(run, 0)
    session.client.cancel(run, 0)
    assert session.sent()[1:] == [p.Cancel(run)]
    assert session.note(p.Ended(run, BAD)) == [p.RunEnded(run, BAD)]
    session.client.cancel(run, 0)  # too late, and harmless
    assert session.sent() == []


def test_the_end_of_a_stopped_run_says_what_is_undone() -> None:
    session = Session()
    session.program(args=0)
    run = session.submit().run
    session.client.stop(run, 0)
    assert session.sent()[1:] == [p.StopRun(run)]
    assert session.note(p.Ended(run, undone=7)) == [p.RunEnded(run, undone=7)]
    session.client.stop(run, 0)  # too late, and harmless
    assert session.sent() == []


def test_all_other_calls_are_sent_as_they_are() -> None:
    session = Session()
    name = session.program()
    session.client.release_slice("s", 0)
    session.client.unregister(name, 0)
    assert session.sent() == [p.ReleaseSlice("s"), p.Unregister(name)]


# --- batching ---------------------------------------------------------------------------------------------


def test_calls_collect_while_messages_are_in_flight_and_leave_together_when_one_lands() -> None:
    session = Session(pipe=2)
    session.note()
    session.hear(p.CallsMade())
    session.now = 10_000_000
    session.client.register(program(args=0), session.now)
    session.now = 20_000_000
    runs = [session.submit().run for _ in range(5)]
    assert [type(message) for message in session.sent()] == [p.Register, p.Submit, p.Submit]
    ended, sent = session.note(p.Ended(runs[0]))
    assert ended == p.RunEnded(1)
    assert isinstance(sent, p.Send)
    assert isinstance(sent.message, p.Calls)
    assert [call.run for call in sent.message.calls if isinstance(call, p.Submit)] == [3, 4, 5]


def test_a_message_that_nothing_answers_counts_as_landed_after_a_while() -> None:
    session = Session(pipe=1, linger=100)
    buffer = session.put()
    assert session.client.next_wakeup() is None
    assert session.sent() == [p.Put(buffer, X, SLICE)]
    session.now = 30
    session.client.release((buffer,), session.now)
    assert session.sent() == []
    assert session.client.next_wakeup() == 100
    session.now = 99
    assert session.hear(p.Wakeup()) == []
    session.now = 100
    assert session.hear(p.Wakeup()) == [p.Send((p.CONTROLLER,), p.Release((buffer,)))]


def test_what_has_gathered_leaves_when_the_user_waits_whatever_is_in_flight() -> None:
    session = Session(pipe=1, batch=2)
    session.program(args=0)
    session.sent()
    runs = [session.submit().run for _ in range(3)]
    assert session.sent() == []
    session.client.send_all(session.now)
    messages = session.sent()
    assert [[call.run for call in getattr(each, "calls", (each,))] for each in messages] == [runs[:2], runs[2:]]
    session.hear(p.Disconnected(p.CONTROLLER))
    session.submit()
    session.client.send_all(session.now)
    assert session.sent() == []  # to nobody


def test_a_message_has_a_size_limit_and_releases_are_merged() -> None:
    session = Session(pipe=1, batch=2)
    buffers = tuple(session.put() for _ in range(4))
    session.sent()
    for buffer in buffers:
        session.client.release((buffer,), 0)
    session.now = 10_000_000
    assert session.hear(p.Wakeup()) == [p.Send((p.CONTROLLER,), p.Calls((p.Put(2, X, SLICE), p.Put(3, X, SLICE))))]
    session.now = 20_000_000
    assert session.hear(p.Wakeup()) == [p.Send((p.CONTROLLER,), p.Calls((p.Put(4, X, SLICE), p.Release((1, 2, 3, 4)))))]


# --- bounds -----------------------------------------------------------------------------------------------


def test_a_call_beyond_the_bound_is_blocked_and_changes_nothing() -> None:
    session = Session(max_runs=2)
    session.program(donate=(0,))
    buffer = session.put()
    session.submit(b"x" * 16)
    session.submit(b"x" * 16)
    session.sent()
    assert isinstance(session.client.submit(1, (buffer,), 0), Blocked)
    assert session.sent() == []
    assert session.note(p.Ended(1)) == [p.RunEnded(1), p.Unblocked()]
    assert session.submit(buffer) == (3, (4,))


def test_puts_and_gets_are_bounded_too() -> None:
    session = Session(max_requests=2)
    buffer = session.put()
    assert isinstance(session.client.get(buffer, 0), int)
    assert isinstance(session.client.get(buffer, 0), Blocked)
    assert isinstance(session.client.put(X, SLICE, 0), Blocked)
    assert session.note(p.PutAccepted(buffer, 1, WHERE))[-1] == p.Unblocked()
    again = session.client.put(X, SLICE, 0)
    assert isinstance(again, int)
    session.note(p.ContentsReady((again,), BAD))  # too large for any time
    assert isinstance(session.client.put(X, SLICE, 0), int)


def test_without_a_connection_calls_collect_within_bounds() -> None:
    session = Session(connected=False, max_runs=3)
    for _ in range(3):
        assert isinstance(session.client.register(program(), 0), int)
    assert isinstance(session.client.register(program(), 0), Blocked)
    assert isinstance(session.client.release_slice("s", 0), Blocked)


# --- mistakes of the user ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda c: c.submit(9, (), 0), "register it first"),
        (lambda c: c.submit(1, (), 0), "takes 2 arguments, not 0"),
        (lambda c: c.submit(1, (1, 99), 0), "use what `submit` or `put` returned"),
        (lambda c: c.submit(1, (1, b"abc"), 0), "has 3 bytes; its type has 16"),
        (lambda c: c.submit(1, (1, 2), 0), "buffer 2 was released"),
        (lambda c: c.submit(1, (1, 3), 0), "donated to run 1 of 'f'; donate a copy"),
        (lambda c: c.submit(1, (1, 1), 0), "pass a copy"),
        (lambda c: c.submit(1, (1, b"x" * 16), 0, keep=(True,)), "`keep` names 1"),
        (lambda c: c.submit(1, (1, b"x" * 16), 0, dispatch="fast"), "'parallel' or 'sequential'"),
        (lambda c: c.submit(2, (b"x" * 8192,), 0), "`put` them first"),
        (lambda c: c.get(2, 0), "was released"),
        (lambda c: c.release((1, 2), 0), "was released"),
        (lambda c: c.release((1, 1), 0), "release it once"),
        (lambda c: c.cancel(5, 0), "never submitted"),
        (lambda c: c.waited(1, 0), "has not ended"),
        (lambda c: c.unregister(9, 0), "is no program"),
        (lambda c: c.handle(p.Finished(1), 0), "not told of Finished"),
    ],
)
def test_a_users_mistake_is_an_error_that_names_the_fix_and_changes_nothing(call: Any, fix: str) -> None:
    session = Session()
    session.program(args=2, results=2, donate=(1,))
    big = Program("g", (SLICE,), (), (Value((2048,), "float32"),), (), ())
    session.client.register(big, 0)
    for _ in range(3):
        session.put()
    session.client.release((2,), 0)
    session.submit(1, 3)
    session.sent()
    with pytest.raises(Illegal, match=fix.replace("(", r"\(")):
        call(session.client)
    assert session.sent() == []
    assert session.submit(1, b"x" * 16) == (2, (6, 7))


def test_a_weight_is_at_least_one() -> None:
    with pytest.raises(Illegal):
        Client("me", Cluster(), weight=0)


def test_the_number_of_programs_is_bounded() -> None:
    session = Session(max_programs=1)
    session.program()
    with pytest.raises(Illegal, match="unregister some first"):
        session.client.register(program(), 0)


# --- mistakes of the controller ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "note",
    [
        p.Ended(1), p.Ended(9), p.ContentsReady((99,)), p.PutAccepted(1, 4, WHERE), p.GetAccepted(1, 4, WHERE),
        p.Grant(1, 2, 3, 4),
    ],
    ids=lambda note: type(note).__name__,
)  # fmt: skip
def test_an_invalid_message_closes_the_controller_and_raises_nothing(note: Any) -> None:
    session = Session()
    session.program(args=0)
    session.submit()
    session.submit()
    session.note(p.Ended(1))
    effects = session.note(note, p.Ended(2))
    assert isinstance(effects[-3], p.Close)
    assert isinstance(effects[-2], p.RunEnded)
    assert effects[-2].run == 2
    assert isinstance(effects[-1], p.BuffersReady)
    assert session.client.state == "closed"
    assert session.note(p.Ended(2)) == []


def test_refusals_are_passed_on_and_fail_the_promised_results() -> None:
    session = Session()
    buffer = session.put()
    session.sent()
    assert session.note(p.Refused("put", buffer, BAD)) == [
        p.BuffersReady((buffer,), BAD),
        p.CallRefused("put", buffer, BAD),
    ]
    assert session.note(p.Refused("program", 1, BAD)) == [p.CallRefused("program", 1, BAD)]


def test_a_buffer_is_reported_ready_once_and_may_be_lost_later() -> None:
    session = Session()
    buffer, other = session.put(), session.put()
    session.sent()
    assert session.note(p.ContentsReady((buffer,))) == [p.BuffersReady((buffer,))]
    assert session.note(p.ContentsReady((buffer,))) == []
    assert session.note(p.ContentsReady((buffer,), BAD)) == [p.BuffersReady((buffer,), BAD)]
    session.client.release((other,), 0)
    session.sent()
    assert session.note(p.ContentsReady((other,))) == []


# --- connections and ends ---------------------------------------------------------------------------------


def test_calls_before_the_connection_leave_after_open() -> None:
    session = Session(connected=False)
    session.client.register(program(args=0), 0)
    session.submit()
    assert [e.message for e in session.hear(p.Connected(p.CONTROLLER)) if isinstance(e, p.Send)] == [
        p.Open("me", 2), p.Calls((p.Register(1, program(args=0)), p.Submit(1, 1, (), (1,)))),
    ]  # fmt: skip


def test_a_restarted_controller_is_told_held_buffers_and_open_runs() -> None:
    session = Session()
    session.program(args=0)
    session.submit()
    session.submit()
    session.note(p.Ended(1))
    buffer = session.put()
    request = session.client.get(buffer, 0)
    session.sent()
    (told,) = session.hear(p.Disconnected(p.CONTROLLER, "it began anew", anew=True))
    assert isinstance(told, p.LogLine)
    again = session.hear(p.Connected(p.CONTROLLER))
    assert [e.message for e in again if isinstance(e, p.Send)] == [
        p.Open("me", 2, client=7, held=(1, 2, 3), open_runs=(2,)), p.Register(1, program(args=0)),
    ]  # fmt: skip
    assert [(e.what, e.name) for e in again if isinstance(e, p.CallRefused)] == [("get", request)]
    assert session.note(p.Ended(2, BAD), p.ContentsReady((2, 3), BAD)) == [
        p.RunEnded(2, BAD),
        p.BuffersReady((2, 3), BAD),
    ]


def test_no_message_is_in_flight_on_a_new_connection() -> None:
    session = Session(pipe=1)
    session.program(args=0)
    session.hear(p.Disconnected(p.CONTROLLER))
    session.hear(p.Connected(p.CONTROLLER))
    session.submit()
    assert session.sent() == [p.Submit(1, 1, (), (1,))]


def test_calls_that_had_not_left_are_not_reported_as_known_to_a_restarted_controller() -> None:
    session = Session(pipe=100)
    for _ in range(3):
        session.program(donate=(0,))
    session.client.unregister(2, 0)
    kept, given, released = (session.put() for _ in range(3))
    session.sent()
    session.hear(p.Disconnected(p.CONTROLLER))
    session.submit(given)
    session.client.release((released,), 0)
    session.client.unregister(1, 0)
    new = session.client.register(program(args=0), 0)
    put = session.put()
    request = session.client.get(put, 0)
    messages = [e.message for e in session.hear(p.Connected(p.CONTROLLER)) if isinstance(e, p.Send)]
    assert messages[:3] == [
        p.Open("me", 2, client=7, held=(kept, given, released), spoilt=(kept, given, released)),
        p.Register(1, program(donate=(0,))),
        p.Register(3, program(donate=(0,))),
    ]
    calls = messages[3]
    assert isinstance(calls, p.Calls)
    assert calls.calls == (
        p.Submit(1, 1, (given,), (4,)), p.Release((released,)), p.Unregister(1), p.Register(4, program(args=0)),
        p.Put(put, X, SLICE), p.Get(1, put),
    )  # fmt: skip
    assert (new, request) == (4, 1)


def _flat(messages: list[Any]) -> list[p.Call]:
    return [call for m in messages for call in (m.calls if isinstance(m, p.Calls) else (m,))]


def test_close_sends_all_collected_calls_and_every_run_ends() -> None:
    session = Session(pipe=1)
    session.program(args=0)
    session.submit()
    session.submit()
    session.sent()
    session.client.close(0)
    session.client.close(0)
    assert _flat(session.sent())[-1] == p.CloseSession()
    with pytest.raises(Illegal, match="open another"):
        session.client.submit(1, (), 0)
    effects = session.note(p.Ended(1), p.ConnectionClosed("as asked"))
    assert [e.run for e in effects if isinstance(e, p.RunEnded)] == [1, 2]
    assert session.client.state == "closed"


def test_a_session_that_never_opened_closes_by_itself() -> None:
    session = Session(connected=False)
    session.client.register(program(args=0), 0)
    session.submit()
    session.client.close(0)
    assert [type(e) for e in session.hear(p.CallsMade())] == [p.RunEnded, p.BuffersReady]
    assert session.hear(p.Connected(p.CONTROLLER)) == []


def test_a_controller_that_goes_while_the_session_closes_ends_it() -> None:
    session = Session()
    session.program(args=0)
    session.submit()
    session.client.close(0)
    session.sent()
    effects = session.hear(p.Disconnected(p.CONTROLLER))
    assert [type(e) for e in effects] == [p.LogLine, p.RunEnded, p.BuffersReady]


def test_blocked_callers_are_told_when_the_session_ends() -> None:
    session = Session(max_runs=1)
    session.program(args=0)
    session.submit()
    assert isinstance(session.client.submit(1, (), 0), Blocked)
    assert session.note(p.ConnectionClosed("too slow"))[-1] == p.Unblocked()

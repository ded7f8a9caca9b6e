"""Runs that the cluster has failed are submitted again under the user's names. Gets that broke off are asked again."""

from __future__ import annotations

from typing import Any

import pytest

from core.client.client import Client
from core.client.client_limits import Blocked, Limits, Submitted
from core.client.retries import FIRST, INFRASTRUCTURE, MOST, pause
from core.model.errors import Illegal
from core.model.place import line
from core.model.plan import Layout
from core.model.program import Arg, Program, Sharding, SliceSpec, Value
from core.protocol.effects import (
    BuffersReady,
    CallRefused,
    CallsMade,
    Command,
    Connected,
    Disconnected,
    Event,
    GetStarted,
    MessageReceived,
    PutContentsUnneeded,
    PutStarted,
    RunAgain,
    RunEnded,
    Send,
    Unblocked,
    Wakeup,
)
from core.protocol.messages import (
    Blame,
    Calls,
    Cancel,
    ClientMessages,
    ContentsReady,
    Ended,
    Get,
    GetAccepted,
    Open,
    Opened,
    Put,
    PutAccepted,
    Refused,
    Register,
    Release,
    Submit,
    Unregister,
)
from core.protocol.peers import CONTROLLER

from ..hostworld import Cluster
from .test_client_contents import of_contents

SLICE = SliceSpec("s", 1)
X = Value((4,), "float32")
WHERE = Layout((4,), "float32", line(0, 0, 1), (1,), Sharding())
LOST = Blame("host-lost", "host 1 was lost", host=1)
BAD = Blame("user", "boom")
LITERAL = b"x" * 16


def program(args: int = 1, results: int = 1, donate: tuple[int, ...] = ()) -> Program:
    return Program("f", (SLICE,), (), (X,) * args, (), (Arg(0),) * results, donate)


class Session:
    """A client whose connection is open, what it sent, and what it said."""

    def __init__(self, **limits: int) -> None:
        self.client = Client("me", Cluster(), limits=Limits(pipe=1000, **limits))
        self.now = 0
        self.calls: list[Any] = []
        self.hear(Connected(CONTROLLER))
        self.note(Opened(7, 0))

    def hear(self, event: Event) -> list[Command]:
        """Give the client a message. Returns what the user is told; calls that leave are kept in `calls`."""
        told = []
        for effect in self.client.handle(event, self.now):
            if of_contents(effect):
                continue
            if isinstance(effect, Send):
                message: Any = effect.message
                self.calls += message.calls if isinstance(message, Calls) else (message,)
            else:
                told.append(effect)
        return told

    def note(self, *notes: Any) -> list[Command]:
        return self.hear(MessageReceived(CONTROLLER, ClientMessages(notes)))

    def sent(self) -> list[Any]:
        """The messages that the calls just made have sent."""
        self.calls = []
        self.hear(CallsMade())
        calls, self.calls = self.calls, []
        return calls

    def program(self, **more: Any) -> int:
        name = self.client.register(program(**more), self.now)
        assert isinstance(name, int)
        self.sent()
        return name

    def submit(self, *args: int | bytes, of: int = 1, retries: int = 2, **more: Any) -> Submitted:
        found = self.client.submit(of, args, self.now, retries=retries, **more)
        assert isinstance(found, Submitted)
        return found

    def put(self, again: bool = False) -> int:
        found = self.client.put(X, SLICE, self.now, again=again)
        assert isinstance(found, int)
        self.note(ContentsReady((found,)))
        return found

    def get(self, buffer: int) -> int:
        found = self.client.get(buffer, self.now)
        assert isinstance(found, int)
        return found

    def wait(self) -> list[Command]:
        """Let time pass until the next try is due."""
        due = self.client.next_wakeup()
        assert due is not None
        self.now = due
        self.calls = []
        return self.hear(Wakeup())


# --- what is tried again ------------------------------------------------------------------------------------


def test_a_run_that_the_cluster_failed_ends_once_with_the_result_of_its_next_try() -> None:
    session = Session()
    session.program()
    run, (result,) = session.submit(LITERAL)
    session.sent()
    assert session.note(Ended(run, LOST)) == [RunAgain(run, LOST, 1, FIRST)]
    assert session.client.next_wakeup() == FIRST
    assert session.wait() == []
    assert session.calls == [Release((result,)), Submit(2, 1, (LITERAL,), (2,))]
    assert session.note(Ended(2), ContentsReady((2,))) == [RunEnded(run), BuffersReady((result,))]
    session.client.release((result,), session.now)
    assert session.sent() == [Release((2,))]
    assert session.client.next_wakeup() is None


@pytest.mark.parametrize("code", INFRASTRUCTURE)
def test_a_run_is_tried_again_for_any_loss_in_the_cluster(code: str) -> None:
    session = Session()
    session.program()
    run = session.submit(LITERAL).run
    assert isinstance(session.note(Ended(run, Blame(code, "gone")))[0], RunAgain)


@pytest.mark.parametrize("code", ["user", "refused", "no-memory", "timeout", "cancelled", "code"])
def test_a_failure_that_would_repeat_is_not_tried_again(code: str) -> None:
    session = Session()
    session.program()
    run, results = session.submit(LITERAL)
    blame = Blame(code, "so it is")
    assert session.note(Ended(run, blame)) == [RunEnded(run, blame), BuffersReady(results, blame)]


def test_tries_are_bounded_and_further_apart_each_time_and_the_last_error_tells_their_number() -> None:
    session = Session()
    session.program()
    run, results = session.submit(LITERAL)
    for number, wire in ((1, 1), (2, 2)):
        assert session.note(Ended(wire, LOST)) == [RunAgain(run, LOST, number, session.now + FIRST * number)]
        session.wait()
    blame = Blame("host-lost", "host 1 was lost; it was run 3 times", host=1)
    assert session.note(Ended(3, LOST)) == [RunEnded(run, blame), BuffersReady(results, blame)]
    assert [pause(tries) for tries in (1, 2, 3)] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert pause(1000) == MOST


def test_without_retries_nothing_is_tried_again() -> None:
    session = Session()
    session.program()
    run = session.submit(LITERAL, retries=0).run
    assert session.note(Ended(run, LOST)) == [RunEnded(run, LOST)]
    assert session.client.next_wakeup() is None


def test_a_result_that_was_ready_and_is_made_again_is_the_same_future() -> None:
    session = Session()
    session.program(results=2)
    run, (first, second) = session.submit(LITERAL)
    assert session.note(ContentsReady((first,))) == [BuffersReady((first,))]
    assert session.note(ContentsReady((second,), LOST)) == []  # the end of their run will say so
    session.note(Ended(run, LOST))
    session.wait()
    assert session.calls == [Release((first, second)), Submit(2, 1, (LITERAL,), (3, 4))]
    assert session.note(ContentsReady((3, 4)), Ended(2)) == [BuffersReady((first, second)), RunEnded(run)]


def test_a_released_result_is_not_made_again() -> None:
    session = Session()
    session.program(results=2)
    run, (first, second) = session.submit(LITERAL)
    session.client.release((first,), 0)
    session.note(Ended(run, LOST))
    session.client.release((second,), 0)
    session.wait()
    assert session.calls[-1] == Submit(2, 1, (LITERAL,), (0, 0))


# --- arguments ------------------------------------------------------------------------------------------------


def test_arguments_are_held_until_the_run_has_ended_and_then_released() -> None:
    session = Session()
    session.program()
    buffer = session.put()
    run, _ = session.submit(buffer)
    session.sent()
    session.client.release((buffer,), 0)
    assert session.sent() == []
    with pytest.raises(Illegal, match="was released"):
        session.submit(buffer)
    session.note(Ended(run, LOST))
    session.wait()
    assert Submit(2, 1, (buffer,), (3,)) in session.calls
    session.calls = []
    assert session.note(Ended(2)) == [RunEnded(run)]
    assert session.calls == [Release((buffer,))]


def test_an_argument_that_was_lost_with_its_host_makes_the_failure_final_and_is_named() -> None:
    session = Session()
    session.program()
    buffer = session.put()
    run, results = session.submit(buffer)
    told = session.note(ContentsReady((buffer,), LOST), Ended(run, LOST))
    assert told == [
        BuffersReady((buffer,), LOST), RunEnded(run, LOST, ((buffer, "lost"),)), BuffersReady(results, LOST),
    ]  # fmt: skip


def test_an_argument_that_is_lost_while_the_run_waits_makes_the_failure_final() -> None:
    session = Session()
    session.program()
    buffer = session.put()
    run, results = session.submit(buffer)
    session.note(Ended(run, LOST))
    session.note(ContentsReady((buffer,), LOST))
    assert session.wait() == [RunEnded(run, LOST, ((buffer, "lost"),)), BuffersReady(results, LOST)]


def test_a_run_whose_argument_was_donated_is_not_tried_again() -> None:
    session = Session()
    session.program(donate=(0,))
    buffer = session.put()
    run, results = session.submit(buffer)
    assert session.note(Ended(run, LOST)) == [
        RunEnded(run, LOST, ((buffer, "donated"),)), BuffersReady(results, LOST),
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [False, True])
def test_a_result_that_was_donated_while_its_run_goes_on_may_be_made_again(lost: bool) -> None:
    session = Session()
    session.program()
    session.program(donate=(0,))
    first, (x,) = session.submit(LITERAL)
    second, results = session.submit(x, of=2)
    session.note(Ended(second, LOST))
    assert session.wait() == []  # whether `x` will be made again is not known yet
    assert session.client.next_wakeup() is None
    told = session.note(Ended(first, LOST if lost else None))
    if lost:
        assert [type(each) for each in told] == [RunAgain]
        session.wait()
        submits = [call for call in session.calls if isinstance(call, Submit)]
        assert submits == [Submit(3, 1, (LITERAL,), (3,)), Submit(4, 2, (3,), (4,))]
    else:
        assert told == [
            RunEnded(first), RunEnded(second, LOST, ((x, "donated"),)), BuffersReady(results, LOST),
        ]  # fmt: skip


@pytest.mark.parametrize("donate", [(), (0,)])
def test_a_put_whose_contents_are_kept_is_put_again(donate: tuple[int, ...]) -> None:
    session = Session()
    session.program(donate=donate)
    buffer = session.put(again=True)
    run, _ = session.submit(buffer)
    session.note(ContentsReady((buffer,), LOST) if not donate else ContentsReady(()), Ended(run, LOST))
    session.wait()
    again, submitted = [call for call in session.calls if isinstance(call, Put | Submit)]
    assert again == Put(3, X, SLICE)
    assert submitted == Submit(2, 1, (3,), (4,))
    assert session.note(PutAccepted(3, 40, WHERE)) == [PutStarted(buffer, 40, WHERE)]
    told = session.note(Ended(2))
    if donate:
        assert told == [RunEnded(run), PutContentsUnneeded((buffer,))]
    else:
        assert told == [RunEnded(run)]
        session.client.release((buffer,), session.now)
        assert session.hear(CallsMade()) == [PutContentsUnneeded((buffer,))]


# --- chains ---------------------------------------------------------------------------------------------------


def test_a_later_run_that_reads_the_result_is_submitted_again_behind_its_maker() -> None:
    session = Session()
    session.program()
    first, (x,) = session.submit(LITERAL)
    second, (y,) = session.submit(x)
    session.client.release((x,), 0)
    told = session.note(Ended(second, LOST), Ended(first, LOST))  # its reader may be told first
    assert [type(each) for each in told] == [RunAgain, RunAgain]
    session.wait()
    submits = [call for call in session.calls if isinstance(call, Submit)]
    assert submits == [Submit(3, 1, (LITERAL,), (3,)), Submit(4, 1, (3,), (4,))]
    assert session.note(Ended(3), ContentsReady((3,)), Ended(4), ContentsReady((4,)))[-1] == BuffersReady(
        (y,)
    )


def test_a_run_without_retries_that_reads_a_lost_result_fails_for_good() -> None:
    session = Session()
    session.program()
    first, (x,) = session.submit(LITERAL)
    second, _ = session.submit(x, retries=0)
    told = session.note(Ended(first, LOST), Ended(second, LOST))
    assert told == [RunAgain(first, LOST, 1, FIRST), RunEnded(second, LOST)]


def test_a_call_that_reads_a_result_to_be_made_again_is_blocked_until_then() -> None:
    session = Session()
    session.program()
    first, (x,) = session.submit(LITERAL)
    session.note(Ended(first, LOST))
    blocked = session.client.submit(1, (x,), 0)
    assert isinstance(blocked, Blocked)
    assert blocked.reason == "run 1 of 'f' is submitted again, and makes what this call reads"
    assert isinstance(session.client.get(x, 0), Blocked)
    assert session.submit(LITERAL).run == 2  # other calls are not
    assert session.wait() == [Unblocked()]
    session.submit(x)
    assert [call.args for call in session.sent()] == [(3,)]


def test_runs_that_read_a_result_lost_for_good_fail_with_it() -> None:
    session = Session()
    session.program()
    first, (x,) = session.submit(LITERAL, retries=1)
    second, (y,) = session.submit(x, retries=5)
    session.note(Ended(first, LOST), Ended(second, LOST))
    session.wait()
    told = session.note(Ended(3, BAD), Ended(4, LOST))[2:]
    assert told == [RunEnded(second, LOST, ((x, "lost"),)), BuffersReady((y,), LOST)]


# --- ends -----------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_its_next_try_can_be_cancelled() -> None:
    session = Session()
    session.program()
    run, results = session.submit(LITERAL)
    session.note(Ended(run, LOST))
    session.client.cancel(run, 0)
    blame = Blame("cancelled", "cancelled by its client", "f")
    assert session.hear(CallsMade()) == [RunEnded(run, blame), BuffersReady(results, blame)]
    assert session.client.next_wakeup() is None


def test_cancel_reaches_the_try_that_is_under_way() -> None:
    session = Session()
    session.program()
    run, _ = session.submit(LITERAL)
    session.note(Ended(run, LOST))
    session.wait()
    session.client.cancel(run, 0)
    assert session.sent()[-1] == Cancel(2)
    assert isinstance(session.note(Ended(2, LOST))[0], RunEnded)  # it was lost as well: nobody wants it again


def test_a_session_that_ends_also_ends_waiting_runs() -> None:
    session = Session()
    session.program()
    run, results = session.submit(LITERAL)
    session.note(Ended(run, LOST))
    session.client.close(0)
    assert session.hear(CallsMade()) == [RunEnded(run, LOST), BuffersReady(results, LOST)]


def test_runs_that_wait_for_their_next_try_count_as_under_way() -> None:
    session = Session(max_runs=1)
    session.program()
    run, _ = session.submit(LITERAL)
    session.note(Ended(run, LOST))
    assert isinstance(session.client.submit(1, (LITERAL,), 0), Blocked)
    session.wait()
    assert isinstance(session.client.submit(1, (LITERAL,), 0), Blocked)
    assert session.note(Ended(2))[-1] == Unblocked()


def test_a_program_that_was_unregistered_meanwhile_is_registered_for_the_next_try() -> None:
    session = Session()
    name = session.program()
    run, _ = session.submit(LITERAL)
    session.client.unregister(name, 0)
    session.note(Ended(run, LOST))
    session.wait()
    assert session.calls[:1] == [Register(2, program())]
    assert session.calls[2:] == [Submit(2, 2, (LITERAL,), (2,)), Unregister(2)]


def test_a_restarted_controller_gets_again_what_it_lost() -> None:
    session = Session()
    session.program()
    buffer = session.put()
    run, _ = session.submit(buffer)
    session.sent()
    session.hear(Disconnected(CONTROLLER, "it began anew", anew=True))
    assert session.client.next_wakeup() is None
    session.hear(Connected(CONTROLLER))
    assert session.calls == [Open("me", client=7, held=(1, 2), open_runs=(1,)), Register(1, program())]
    restart = Blame("restart", "the controller was restarted while this ran")
    told = session.note(
        Opened(7, 1), ContentsReady((buffer,)), ContentsReady((2,), restart), Ended(run, restart)
    )
    assert told == [RunAgain(run, restart, 1, FIRST)]
    session.wait()
    assert session.calls == [Release((2,)), Submit(2, 1, (buffer,), (3,))]


# --- gets -----------------------------------------------------------------------------------------------------


def test_a_get_whose_answer_was_lost_is_asked_again() -> None:
    session = Session()
    buffer = session.put()
    request = session.get(buffer)
    session.sent()
    session.hear(Disconnected(CONTROLLER, anew=True))
    assert session.hear(Connected(CONTROLLER)) == []
    assert session.calls[-1] == Get(2, buffer)
    assert session.note(GetAccepted(2, 9, WHERE)) == [GetStarted(request, 9, WHERE)]


def test_a_get_whose_buffer_is_lost_is_refused_with_the_reason() -> None:
    session = Session()
    buffer = session.put()
    request = session.get(buffer)
    session.hear(Disconnected(CONTROLLER, anew=True))
    session.hear(Connected(CONTROLLER))
    told = session.note(ContentsReady((buffer,), LOST), Refused("get", 2, LOST))
    assert told == [BuffersReady((buffer,), LOST), CallRefused("get", request, LOST)]


def test_a_get_of_a_result_that_is_made_again_waits_for_it() -> None:
    session = Session()
    session.program()
    run, (result,) = session.submit(LITERAL)
    request = session.get(result)
    assert session.note(Refused("get", request, LOST), Ended(run, LOST)) == [RunAgain(run, LOST, 1, FIRST)]
    session.wait()
    session.calls = []
    session.note(ContentsReady((2,)), Ended(2))
    assert session.calls == [Get(2, 2)]
    assert session.note(GetAccepted(2, 9, WHERE)) == [GetStarted(request, 9, WHERE)]


def test_the_number_of_tries_of_a_get_is_bounded() -> None:
    session = Session()
    buffer = session.put()
    request = session.get(buffer)
    told: list[Command] = []
    for number in (1, 2, 3, 4):
        assert told == []
        told = session.note(Refused("get", number, LOST))
    assert told == [CallRefused("get", request, LOST)]

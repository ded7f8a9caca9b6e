"""Runs that the cluster has failed are submitted again under the user's names. Gets that broke off are asked again."""

from __future__ import annotations

from typing import Any

import pytest

from core import protocol as p
from core.client.client_limits import Blocked, Limits, Submitted
from core.client.retries import FIRST, INFRASTRUCTURE, MOST, pause
from core.model.errors import Illegal

from .test_client import BAD, SLICE, WHERE, Session, X, program
from .test_client_contents import of_contents

LOST = p.Blame("host-lost", "host 1 was lost", host=1)
LITERAL = b"x" * 16


class RetryingSession(Session):
    """A client whose runs are tried again; what it has sent is in `calls`."""

    def __init__(self, **limits: int) -> None:
        self.calls: list[Any] = []
        super().__init__(True, pipe=1000, get_retries=Limits().get_retries, **limits)

    def hear(self, event: p.Event) -> list[p.Command]:
        """Give the client a message. Returns what the user is told; calls that leave are kept in `calls`."""
        told = []
        for effect in self.client.handle(event, self.now):
            if of_contents(effect):
                continue
            if isinstance(effect, p.Send):
                message: Any = effect.message
                self.calls += message.calls if isinstance(message, p.Calls) else (message,)
            else:
                told.append(effect)
        return told

    def sent(self) -> list[Any]:
        """The messages that the calls just made have sent."""
        self.calls = []
        self.hear(p.CallsMade())
        calls, self.calls = self.calls, []
        return calls

    def submit(self, *args: int | bytes, retries: int = 2, **more: Any) -> Submitted:
        return super().submit(*args, retries=retries, **more)

    def put(self, again: bool = False) -> int:
        found = self.client.put(X, SLICE, self.now, again=again)
        assert isinstance(found, int)
        self.note(p.ContentsReady((found,)))
        return found

    def get(self, buffer: int) -> int:
        found = self.client.get(buffer, self.now)
        assert isinstance(found, int)
        return found

    def wait(self) -> list[p.Command]:
        """Let time pass until the next try is due."""
        due = self.client.next_wakeup()
        assert due is not None
        self.now = due
        self.calls = []
        return self.hear(p.Wakeup())


def retrying(**more: Any) -> RetryingSession:
    """A session with a program."""
    session = RetryingSession()
    session.program(**more)
    return session


# --- what is tried again ------------------------------------------------------------------------------------


def test_a_run_that_the_cluster_failed_ends_once_with_the_result_of_its_next_try() -> None:
    session = retrying()
    run, (result,) = session.submit(LITERAL)
    session.sent()
    assert session.note(p.Ended(run, LOST)) == [p.RunAgain(run, LOST, 1, FIRST)]
    assert session.client.next_wakeup() == FIRST
    assert session.wait() == []
    assert session.calls == [p.Release((result,)), p.Submit(2, 1, (LITERAL,), (2,))]
    assert session.note(p.Ended(2), p.ContentsReady((2,))) == [p.RunEnded(run), p.BuffersReady((result,))]
    session.client.release((result,), session.now)
    assert session.sent() == [p.Release((2,))]
    assert session.client.next_wakeup() is None


@pytest.mark.parametrize("code", INFRASTRUCTURE)
def test_a_run_is_tried_again_for_any_loss_in_the_cluster(code: str) -> None:
    session = retrying()
    run = session.submit(LITERAL).run
    assert isinstance(session.note(p.Ended(run, p.Blame(code, "gone")))[0], p.RunAgain)


@pytest.mark.parametrize("code", ["user", "refused", "no-memory", "timeout", "cancelled", "code"])
def test_a_failure_that_would_repeat_is_not_tried_again(code: str) -> None:
    session = retrying()
    run, results = session.submit(LITERAL)
    blame = p.Blame(code, "so it is")
    assert session.note(p.Ended(run, blame)) == [p.RunEnded(run, blame), p.BuffersReady(results, blame)]


def test_tries_are_bounded_and_further_apart_each_time_and_the_last_error_tells_their_number() -> None:
    session = retrying()
    run, results = session.submit(LITERAL)
    for number, wire in ((1, 1), (2, 2)):
        assert session.note(p.Ended(wire, LOST)) == [p.RunAgain(run, LOST, number, session.now + FIRST * number)]
        session.wait()
    blame = p.Blame("host-lost", "host 1 was lost; it was run 3 times", host=1)
    assert session.note(p.Ended(3, LOST)) == [p.RunEnded(run, blame), p.BuffersReady(results, blame)]
    assert [pause(tries) for tries in (1, 2, 3)] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert pause(1000) == MOST


def test_without_retries_nothing_is_tried_again() -> None:
    session = retrying()
    run = session.submit(LITERAL, retries=0).run
    assert session.note(p.Ended(run, LOST)) == [p.RunEnded(run, LOST)]
    assert session.client.next_wakeup() is None


def test_a_result_that_was_ready_and_is_made_again_is_the_same_future() -> None:
    session = retrying(results=2)
    run, (first, second) = session.submit(LITERAL)
    assert session.note(p.ContentsReady((first,))) == [p.BuffersReady((first,))]
    assert session.note(p.ContentsReady((second,), LOST)) == []  # the end of their run will say so
    session.note(p.Ended(run, LOST))
    session.wait()
    assert session.calls == [p.Release((first, second)), p.Submit(2, 1, (LITERAL,), (3, 4))]
    assert session.note(p.ContentsReady((3, 4)), p.Ended(2)) == [p.BuffersReady((first, second)), p.RunEnded(run)]


def test_a_released_result_is_not_made_again() -> None:
    session = retrying(results=2)
    run, (first, second) = session.submit(LITERAL)
    session.client.release((first,), 0)
    session.note(p.Ended(run, LOST))
    session.client.release((second,), 0)
    session.wait()
    assert session.calls[-1] == p.Submit(2, 1, (LITERAL,), (0, 0))


# --- arguments ------------------------------------------------------------------------------------------------


def test_arguments_are_held_until_the_run_has_ended_and_then_released() -> None:
    session = retrying()
    buffer = session.put()
    run, _ = session.submit(buffer)
    session.sent()
    session.client.release((buffer,), 0)
    assert session.sent() == []
    with pytest.raises(Illegal, match="was released"):
        session.submit(buffer)
    session.note(p.Ended(run, LOST))
    session.wait()
    assert p.Submit(2, 1, (buffer,), (3,)) in session.calls
    session.calls = []
    assert session.note(p.Ended(2)) == [p.RunEnded(run)]
    assert session.calls == [p.Release((buffer,))]


def test_an_argument_that_was_lost_with_its_host_makes_the_failure_final_and_is_named() -> None:
    session = retrying()
    buffer = session.put()
    run, results = session.submit(buffer)
    told = session.note(p.ContentsReady((buffer,), LOST), p.Ended(run, LOST))
    assert told == [
        p.BuffersReady((buffer,), LOST), p.RunEnded(run, LOST, ((buffer, "lost"),)), p.BuffersReady(results, LOST),
    ]  # fmt: skip


def test_an_argument_that_is_lost_while_the_run_waits_makes_the_failure_final() -> None:
    session = retrying()
    buffer = session.put()
    run, results = session.submit(buffer)
    session.note(p.Ended(run, LOST))
    session.note(p.ContentsReady((buffer,), LOST))
    assert session.wait() == [p.RunEnded(run, LOST, ((buffer, "lost"),)), p.BuffersReady(results, LOST)]


def test_a_run_whose_argument_was_donated_is_not_tried_again() -> None:
    session = retrying(donate=(0,))
    buffer = session.put()
    run, results = session.submit(buffer)
    assert session.note(p.Ended(run, LOST)) == [
        p.RunEnded(run, LOST, ((buffer, "donated"),)), p.BuffersReady(results, LOST),
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [False, True])
def test_a_result_that_was_donated_while_its_run_goes_on_may_be_made_again(lost: bool) -> None:
    session = retrying()
    session.program(donate=(0,))
    first, (x,) = session.submit(LITERAL)
    second, results = session.submit(x, of=2)
    session.note(p.Ended(second, LOST))
    assert session.wait() == []  # whether `x` will be made again is not known yet
    assert session.client.next_wakeup() is None
    told = session.note(p.Ended(first, LOST if lost else None))
    if lost:
        assert [type(each) for each in told] == [p.RunAgain]
        session.wait()
        submits = [call for call in session.calls if isinstance(call, p.Submit)]
        assert submits == [p.Submit(3, 1, (LITERAL,), (3,)), p.Submit(4, 2, (3,), (4,))]
    else:
        assert told == [p.RunEnded(first), p.RunEnded(second, LOST, ((x, "donated"),)), p.BuffersReady(results, LOST)]


@pytest.mark.parametrize("donate", [(), (0,)])
def test_a_put_whose_contents_are_kept_is_put_again(donate: tuple[int, ...]) -> None:
    session = retrying(donate=donate)
    buffer = session.put(again=True)
    run, _ = session.submit(buffer)
    session.note(p.ContentsReady((buffer,), LOST) if not donate else p.ContentsReady(()), p.Ended(run, LOST))
    session.wait()
    again, submitted = [call for call in session.calls if isinstance(call, p.Put | p.Submit)]
    assert again == p.Put(3, X, SLICE)
    assert submitted == p.Submit(2, 1, (3,), (4,))
    assert session.note(p.PutAccepted(3, 40, WHERE)) == [p.PutStarted(buffer, 40, WHERE)]
    told = session.note(p.Ended(2))
    if donate:
        assert told == [p.RunEnded(run), p.PutContentsUnneeded((buffer,))]
    else:
        assert told == [p.RunEnded(run)]
        session.client.release((buffer,), session.now)
        assert session.hear(p.CallsMade()) == [p.PutContentsUnneeded((buffer,))]


# --- chains ---------------------------------------------------------------------------------------------------


def test_a_later_run_that_reads_the_result_is_submitted_again_behind_its_maker() -> None:
    session = retrying()
    first, (x,) = session.submit(LITERAL)
    second, (y,) = session.submit(x)
    session.client.release((x,), 0)
    told = session.note(p.Ended(second, LOST), p.Ended(first, LOST))  # its reader may be told first
    assert [type(each) for each in told] == [p.RunAgain, p.RunAgain]
    session.wait()
    submits = [call for call in session.calls if isinstance(call, p.Submit)]
    assert submits == [p.Submit(3, 1, (LITERAL,), (3,)), p.Submit(4, 1, (3,), (4,))]
    assert session.note(p.Ended(3), p.ContentsReady((3,)), p.Ended(4), p.ContentsReady((4,)))[-1] == p.BuffersReady(
        (y,)
    )


def test_a_run_without_retries_that_reads_a_lost_result_fails_for_good() -> None:
    session = retrying()
    first, (x,) = session.submit(LITERAL)
    second, _ = session.submit(x, retries=0)
    told = session.note(p.Ended(first, LOST), p.Ended(second, LOST))
    assert told == [p.RunAgain(first, LOST, 1, FIRST), p.RunEnded(second, LOST)]


def test_a_call_that_reads_a_result_to_be_made_again_is_blocked_until_then() -> None:
    session = retrying()
    first, (x,) = session.submit(LITERAL)
    session.note(p.Ended(first, LOST))
    blocked = session.client.submit(1, (x,), 0)
    assert isinstance(blocked, Blocked)
    assert blocked.reason == "run 1 of 'f' is submitted again, and makes what this call reads"
    assert isinstance(session.client.get(x, 0), Blocked)
    assert session.submit(LITERAL).run == 2  # other calls are not
    assert session.wait() == [p.Unblocked()]
    session.submit(x)
    assert [call.args for call in session.sent()] == [(3,)]


def test_runs_that_read_a_result_lost_for_good_fail_with_it() -> None:
    session = retrying()
    first, (x,) = session.submit(LITERAL, retries=1)
    second, (y,) = session.submit(x, retries=5)
    session.note(p.Ended(first, LOST), p.Ended(second, LOST))
    session.wait()
    told = session.note(p.Ended(3, BAD), p.Ended(4, LOST))[2:]
    assert told == [p.RunEnded(second, LOST, ((x, "lost"),)), p.BuffersReady((y,), LOST)]


# --- ends -----------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_its_next_try_can_be_cancelled() -> None:
    session = retrying()
    run, results = session.submit(LITERAL)
    session.note(p.Ended(run, LOST))
    session.client.cancel(run, 0)
    blame = p.Blame("cancelled", "cancelled by its client", "f")
    assert session.hear(p.CallsMade()) == [p.RunEnded(run, blame), p.BuffersReady(results, blame)]
    assert session.client.next_wakeup() is None


def test_cancel_reaches_the_try_that_is_under_way() -> None:
    session = retrying()
    run, _ = session.submit(LITERAL)
    session.note(p.Ended(run, LOST))
    session.wait()
    session.client.cancel(run, 0)
    assert session.sent()[-1] == p.Cancel(2)
    # it was lost as well: nobody wants it again
    assert isinstance(session.note(p.Ended(2, LOST))[0], p.RunEnded)


def test_a_run_that_was_told_to_stop_stops_in_its_next_try_too() -> None:
    session = retrying()
    run, _ = session.submit(LITERAL)
    session.client.stop(run, 0)
    assert session.sent()[-1] == p.StopRun(run)
    session.note(p.Ended(run, LOST))
    session.client.stop(run, 0)  # once more, while it waits
    session.wait()
    assert session.calls[-1] == p.StopRun(2)
    assert session.note(p.Ended(2, undone=3))[0] == p.RunEnded(run, undone=3)


def test_a_session_that_ends_also_ends_waiting_runs() -> None:
    session = retrying()
    run, results = session.submit(LITERAL)
    session.note(p.Ended(run, LOST))
    session.client.close(0)
    assert session.hear(p.CallsMade()) == [p.RunEnded(run, LOST), p.BuffersReady(results, LOST)]


def test_runs_that_wait_for_their_next_try_count_as_under_way() -> None:
    session = RetryingSession(max_runs=1)
    session.program()
    run, _ = session.submit(LITERAL)
    session.note(p.Ended(run, LOST))
    assert isinstance(session.client.submit(1, (LITERAL,), 0), Blocked)
    session.wait()
    assert isinstance(session.client.submit(1, (LITERAL,), 0), Blocked)
    assert session.note(p.Ended(2))[-1] == p.Unblocked()


def test_a_program_that_was_unregistered_meanwhile_is_registered_for_the_next_try() -> None:
    session = RetryingSession()
    name = session.program()
    run, _ = session.submit(LITERAL)
    session.client.unregister(name, 0)
    session.note(p.Ended(run, LOST))
    session.wait()
    assert session.calls[:1] == [p.Register(2, program())]
    assert session.calls[2:] == [p.Submit(2, 2, (LITERAL,), (2,)), p.Unregister(2)]


def test_a_restarted_controller_gets_again_what_it_lost() -> None:
    session = retrying()
    buffer = session.put()
    run, _ = session.submit(buffer)
    session.sent()
    session.hear(p.Disconnected(p.CONTROLLER, "it began anew", anew=True))
    assert session.client.next_wakeup() is None
    session.hear(p.Connected(p.CONTROLLER))
    assert session.calls == [p.Open("me", 2, client=7, held=(1, 2), open_runs=(1,)), p.Register(1, program())]
    restart = p.Blame("restart", "the controller was restarted while this ran")
    told = session.note(
        p.Opened(7, 1), p.ContentsReady((buffer,)), p.ContentsReady((2,), restart), p.Ended(run, restart)
    )
    assert told == [p.RunAgain(run, restart, 1, FIRST)]
    session.wait()
    assert session.calls == [p.Release((2,)), p.Submit(2, 1, (buffer,), (3,))]


# --- gets -----------------------------------------------------------------------------------------------------


def test_a_get_whose_answer_was_lost_is_asked_again() -> None:
    session = RetryingSession()
    buffer = session.put()
    request = session.get(buffer)
    session.sent()
    session.hear(p.Disconnected(p.CONTROLLER, anew=True))
    assert session.hear(p.Connected(p.CONTROLLER)) == []
    assert session.calls[-1] == p.Get(2, buffer)
    assert session.note(p.GetAccepted(2, 9, WHERE)) == [p.GetStarted(request, 9, WHERE)]


def test_a_get_whose_buffer_is_lost_is_refused_with_the_reason() -> None:
    session = RetryingSession()
    buffer = session.put()
    request = session.get(buffer)
    session.hear(p.Disconnected(p.CONTROLLER, anew=True))
    session.hear(p.Connected(p.CONTROLLER))
    told = session.note(p.ContentsReady((buffer,), LOST), p.Refused("get", 2, LOST))
    assert told == [p.BuffersReady((buffer,), LOST), p.CallRefused("get", request, LOST)]


def test_a_get_of_a_result_that_is_made_again_waits_for_it() -> None:
    session = retrying()
    run, (result,) = session.submit(LITERAL)
    request = session.get(result)
    assert session.note(p.Refused("get", request, LOST), p.Ended(run, LOST)) == [p.RunAgain(run, LOST, 1, FIRST)]
    session.wait()
    session.calls = []
    session.note(p.ContentsReady((2,)), p.Ended(2))
    assert session.calls == [p.Get(2, 2)]
    assert session.note(p.GetAccepted(2, 9, WHERE)) == [p.GetStarted(request, 9, WHERE)]


def test_the_number_of_tries_of_a_get_is_bounded() -> None:
    session = RetryingSession()
    buffer = session.put()
    request = session.get(buffer)
    told: list[p.Command] = []
    for number in (1, 2, 3, 4):
        assert told == []
        told = session.note(p.Refused("get", number, LOST))
    assert told == [p.CallRefused("get", request, LOST)]

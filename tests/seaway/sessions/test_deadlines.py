"""Deadlines: a client's own, and those of a block of calls. Policy `deadline` uses them, and the trace shows late
runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw
from tests.seaway.small_sessions import small

four = sw.slice(devices=4, name="four")
batch = sw.synthetic("batch", devices=four, duration="10ms")
ask = sw.synthetic("ask", devices=four, duration="1ms")
ZERO = np.float32(0)


def serving(policy: str) -> tuple[sw.Session, list[sw.Run]]:
    """One client has half a second of work queued. The other submits a millisecond now and then, with a deadline."""
    asked: list[sw.Run] = []

    def background() -> None:
        sw.block_until_ready([batch(ZERO) for _ in range(50)])

    def serve() -> None:
        for _ in range(5):
            sw.sleep("20ms")
            x = ask(ZERO)
            x.block_until_ready()
            asked.append(x.run)

    with small(policy=policy) as s:
        s.spawn(background)
        s.spawn(serve, deadline="120ms")
    return s, asked


def test_earliest_deadline_first_meets_deadlines_that_fifo_misses() -> None:
    late = {}
    for policy in ("fifo", "deadline"):
        s, asked = serving(policy)
        assert [run.due_at > 0 for run in asked] == [True] * 5
        late[policy] = sum(run.late for run in asked)
        told = s.trace.clients().set_index("client")["late_runs"]
        assert told.to_dict() == {"background": 0, "serve": late[policy]}
    assert late["fifo"] >= 1
    assert late["deadline"] == 0


def test_a_block_of_calls_has_one_deadline() -> None:
    with small() as s:
        before = s.driver.now()
        with sw.deadline("50ms"):
            x = ask(ask(ZERO))
        y = ask(ZERO)
        assert x.run.due_at == before + 50_000_000
        assert y.run.due_at == 0
    frame = s.trace.runs()
    assert [row == row for row in frame["deadline_us"]] == [True, True, False], "NaN for a run without a deadline"
    assert frame["deadline_us"][0] == frame["deadline_us"][1]
    assert not frame["late"].any()


def test_the_earliest_of_several_deadlines_counts() -> None:
    with small() as s, s.client("a", deadline="50ms"):
        begin = s.driver.now()
        assert ask(ZERO).run.due_at == begin + 50_000_000
        with sw.deadline("1s"):
            first = s.driver.now()
            assert ask(ZERO).run.due_at == first + 50_000_000
            with sw.deadline("2ms"):
                inner = s.driver.now()
                assert ask(ZERO).run.due_at == inner + 2_000_000


def test_a_deadline_applies_to_the_session_in_which_it_was_set() -> None:
    with small(), sw.deadline("50ms"), small():
        assert ask(ZERO).run.due_at == 0


def test_a_late_run_says_so() -> None:
    with small() as s, sw.deadline("1us"):
        x = ask(ZERO)
        x.block_until_ready()
        assert x.run.late
        assert "due at" in repr(x.run)
    assert s.trace.runs()["late"].tolist() == [True]


def traced() -> Any:
    @sw.program
    def f(v: Any) -> Any:
        with sw.deadline("1ms"):
            return ask(v)

    return f(ZERO)


WRONG = [
    (lambda s: s.client("a", deadline="fast"), "client 'a': deadline: time cannot be 'fast'"),
    (lambda s: s.client("a", deadline="-1s"), "client 'a': deadline: time cannot be '-1s': it is negative"),
    (lambda s: s.client("a", deadline=0), "over before it begins; leave it out"),
    (lambda s: sw.deadline("5 parsecs"), "sw.deadline: time '5 parsecs' has an unknown unit"),
    (lambda s: traced(), "around the call of the program"),
    (lambda s: (s.client("b", deadline="1ms"), s.client("b", deadline="2ms")), "with weight 1, priority 0 and dead"),
]


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_an_invalid_deadline_is_refused_by_name(call: Any, said: str) -> None:
    with small() as s, pytest.raises((sw.errors.SeawayError, sw.errors.Impossible, ValueError), match=said):
        call(s)

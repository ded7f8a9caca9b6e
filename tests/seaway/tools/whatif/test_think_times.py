"""What a client's calls say of its user's thinking time: it counts from the moment when what was waited for is there,
to the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw
from core.client.call_batching import CallBatching
from core.protocol.messages import Submit
from tests.seaway.small_sessions import small

MS = 1_000_000
ALL = sw.slice(devices=4, name="all")
work = sw.synthetic("work", devices=ALL, duration="3ms")
ZERO: Any = np.float32(0)


@pytest.fixture(name="calls")
def _calls(monkeypatch: pytest.MonkeyPatch) -> list[Submit]:
    """All calls that leave any client."""
    found: list[Submit] = []
    calling = CallBatching.call

    def called(self: CallBatching, call: Any, now: int) -> None:
        if isinstance(call, Submit):
            found.append(call)
        calling(self, call, now)

    monkeypatch.setattr(CallBatching, "call", called)
    return found


def think_time(use: Callable[[], object], calls: list[Submit]) -> tuple[tuple[int, ...], int]:
    """(what the second of two calls had waited for, how long its user thought since)."""
    with small(values={"work": np.zeros((), np.float32)}):
        use()
    assert len(calls) == 2
    return calls[1].waited, calls[1].think


def costs_of_a_call() -> int:
    with small() as s:
        found: int = s.simulation.profile.client_call
    return found


def test_thinking_time_after_a_wait_is_separate_from_the_wait(calls: list[Submit]) -> None:
    def use() -> None:
        work(ZERO).block_until_ready()
        sw.sleep("5ms")
        work(ZERO)

    assert think_time(use, calls) == ((1,), 5 * MS + costs_of_a_call())


def test_a_result_that_was_ready_before_it_was_read_is_no_wait(calls: list[Submit]) -> None:
    """The user reads it 20 ms after the call, when it has long been ready: all the time since is thinking time."""
    ended = []

    def use() -> None:
        x = work(ZERO)
        sw.sleep("20ms")
        x.block_until_ready()
        sw.sleep("5ms")
        work(ZERO)
        ended.append((x.run.ended_at, sw.current_session().driver.now()))

    waited, think = think_time(use, calls)
    assert waited == (1,)
    over, called = ended[0]
    assert think == called - over > 20 * MS


def test_reading_contents_is_a_wait_until_they_arrive(calls: list[Submit]) -> None:
    def use() -> None:
        x = work(ZERO)
        x.block_until_ready()
        sw.sleep("7ms")  # before it asks for contents: no thinking after
        assert np.asarray(x) == 0
        sw.sleep("2ms")
        work(ZERO)

    waited, think = think_time(use, calls)
    assert waited == (1,)
    assert think == 2 * MS + costs_of_a_call()


def test_without_waits_thinking_time_goes_from_call_to_call(calls: list[Submit]) -> None:
    def use() -> None:
        work(ZERO)
        sw.sleep("4ms")
        work(ZERO)

    assert think_time(use, calls) == ((), 4 * MS + costs_of_a_call())

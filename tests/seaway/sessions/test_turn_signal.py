"""A turn that is handed over: the next thread wakes on the same core, and may run on any of its own again."""

from __future__ import annotations

import os
import threading
from queue import Empty

import pytest

from seaway.sessions.simulated import turn_signal
from seaway.sessions.simulated.turn_signal import TurnSignal

SECONDS = 20.0
needs_cores = pytest.mark.skipif(
    turn_signal.CORE is None or len(os.sched_getaffinity(0)) < 2, reason="threads cannot choose among cores here"
)


class Waiter:
    """A thread that waits for a turn, and then notes on which cores it may run."""

    def __init__(self, signal: TurnSignal | None = None) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.signal = signal or TurnSignal()
        self.cores: set[int] = set()
        self.turns = 0
        self.thread.start()

    def _work(self) -> None:
        self.signal.wait(SECONDS)
        self.turns += 1
        if turn_signal.CORE is not None:
            self.cores = os.sched_getaffinity(0)

    def until_it_waits(self) -> None:
        while not self.signal._cores:
            pass

    def over(self) -> None:
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


def test_a_turn_that_is_not_given_is_not_taken() -> None:
    signal = TurnSignal()
    with pytest.raises(Empty):
        signal.wait(0.001)
    signal.give()
    signal.wait(SECONDS)
    with pytest.raises(Empty):
        signal.wait(0.001)


@pytest.mark.parametrize("how", ["give", "wake"])
def test_a_thread_gets_its_turn_and_may_run_where_it_might_before(how: str) -> None:
    waiter = Waiter()
    getattr(waiter.signal, how)()
    waiter.over()
    assert waiter.turns == 1
    if turn_signal.CORE is not None:
        assert waiter.cores == os.sched_getaffinity(0)


@needs_cores
def test_a_thread_that_waits_is_bound_to_the_core_of_the_one_that_gives_and_only_while_it_wakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound: list[tuple[int, set[int]]] = []
    choose = os.sched_setaffinity

    def seen(thread: int, cores: set[int]) -> None:
        bound.append((thread, set(cores)))
        choose(thread, cores)

    monkeypatch.setattr(os, "sched_setaffinity", seen)
    waiter, everywhere = Waiter(), os.sched_getaffinity(0)
    waiter.until_it_waits()
    here = min(everywhere)
    monkeypatch.setattr(turn_signal, "CORE", lambda: here)
    waiter.signal.give()
    waiter.over()
    assert bound == [(waiter.thread.native_id, {here}), (0, everywhere)]
    assert waiter.cores == everywhere


@needs_cores
def test_a_thread_that_does_not_wait_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be on another core just now, from which it would have to move."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: pytest.fail("it was bound"))
    signal = TurnSignal()
    signal.give()
    signal.wait(SECONDS)


@needs_cores
def test_a_users_choice_of_cores_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that may not run on the core of the one that gives wakes where it may."""
    first, second, *_ = sorted(os.sched_getaffinity(0))

    class OnTheFirst(TurnSignal):
        def wait(self, seconds: float) -> None:
            os.sched_setaffinity(0, {first})
            super().wait(seconds)

    waiter = Waiter(OnTheFirst())
    waiter.until_it_waits()
    monkeypatch.setattr(turn_signal, "CORE", lambda: second)
    waiter.signal.give()
    waiter.over()
    assert waiter.cores == {first}


def test_where_nobody_can_choose_among_cores_turns_are_handed_over_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_signal, "CORE", None)
    waiter = Waiter()
    waiter.signal.give()
    waiter.over()
    assert waiter.turns == 1

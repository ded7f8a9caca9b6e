"""Functions in processes of their own: what they say comes back, and none is waited for without bound."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from backend.admin import Children
from experiments.bench.frame import processes

BOUND = 60.0


def test_one_that_fails_ends_the_others_and_leaves_its_words() -> None:
    first, second = processes.played(member, 2, {}, ["fails"], bound=BOUND)
    assert first.code is None
    assert second.code == 3
    assert "this is why" in second.words
    assert "this is why" not in first.words


def test_members_that_fall_silent_are_ended_long_before_the_bound() -> None:
    begun = time.monotonic()
    found = processes.played(member, 2, {}, ["hangs"], bound=BOUND, silence=0.5)
    assert [each.code for each in found] == [None, None]
    assert [each.said for each in found] == [[{"rank": 0, "of": 2}], [{"rank": 1, "of": 2}]]
    assert time.monotonic() - begun < BOUND / 2


def test_what_a_world_says_last_or_why_it_does_not() -> None:
    assert processes.answers(member, 2, {}, ["ends"], bound=BOUND) == [{"rank": 0, "of": 2}, {"rank": 1, "of": 2}]
    with pytest.raises(RuntimeError, match=r"(?s)process 0 of 1 .*ended with 3: .*this is why"):
        processes.answers(member, 1, {}, ["fails at once"], bound=BOUND)


def test_an_answer_is_what_the_function_returns_in_another_process() -> None:
    pid, doubled = processes.answer(answering, 21, env={"ADDED": "here"}, bound=BOUND)
    assert pid != os.getpid()
    assert doubled == [42, "here"]


def test_a_function_that_fails_or_is_late_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)answering ended with 1: .*ZeroDivisionError"):
        processes.answer(answering, 0, bound=BOUND)
    with pytest.raises(RuntimeError, match=r"answering took more than 0\.5 s"):
        processes.answer(answering, -1, bound=0.5)


def test_a_process_is_heard_until_it_ends_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    children = Children(tmp_path)
    child = processes.start(children, lasting)
    assert processes.heard(child) == {"going": True}
    child.ask_to_end()
    with pytest.raises(RuntimeError, match="the process of lasting ended"):
        processes.heard(child)
    children.end_all()


# --- what runs in the processes -----------------------------------------------------------------------------------


def member(address: str, rank: int, count: int, how: str) -> None:
    print("what others print is left out")
    processes.say(rank=rank, of=count)
    if how.startswith("fails") and rank == count - 1:
        print("this is why", file=sys.stderr)
        raise SystemExit(3)
    if how in ("hangs", "fails"):
        time.sleep(BOUND)
    processes.leave()


def answering(number: int) -> tuple[int, tuple[int, str | None]]:
    if number < 0:
        time.sleep(BOUND)
    return os.getpid(), (number * number * 2 // number, os.environ.get("ADDED"))


def lasting() -> None:
    processes.say(going=True)
    time.sleep(BOUND)

"""Codes are compiled one after another, and one that nobody wants any more holds up nothing."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from backend.pjrt.code.compile_threads import LEFT, LOWEST, CompileJob, CompileThreads

PATIENCE = 60.0  # seconds, after which a wait has failed


class Job:
    """A compilation that takes until it is let go. `shared`: other hosts wait for it."""

    def __init__(self, plan: int, said: list[str], shared: bool = False) -> None:
        self.name = f"plan {plan}"
        self.begun, self.go, self.over = (threading.Event() for _ in range(3))
        self.priority = 0  # of its thread, at its end
        self.said = said
        self.job = CompileJob(plan, self.run, None if shared else lambda: self.answer("dropped"))

    def run(self, wanted: Callable[[], bool]) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        self.priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self.answer("compiled" if wanted() else "unwanted")

    def answer(self, how: str) -> None:
        self.said.append(f"{self.name} {how}")
        self.over.set()


class Rig:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.errors: list[BaseException] = []
        self.threads = CompileThreads(self.errors.append)
        self.jobs: list[Job] = []

    def job(self, plan: int, shared: bool = False) -> Job:
        found = Job(plan, self.said, shared)
        self.jobs.append(found)
        self.threads.do(found.job)
        return found

    def begun(self, *plans: int) -> list[Job]:
        """A job for each plan, of which the first has begun."""
        found = [self.job(plan) for plan in plans]
        assert found[0].begun.wait(PATIENCE)
        return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    for each in found.jobs:
        each.go.set()
    assert found.threads.end(PATIENCE)
    assert found.errors == []


def ended(*jobs: Job) -> None:
    for each in jobs:
        each.go.set()
        assert each.over.wait(PATIENCE)


def test_codes_are_compiled_one_at_a_time_in_their_order(rig: Rig) -> None:
    first, second = rig.begun(1, 2)
    assert not second.begun.is_set()
    ended(first, second)
    assert rig.said == ["plan 1 compiled", "plan 2 compiled"]


def test_what_waits_for_a_forgotten_plan_is_dropped_at_once_and_others_go_on(rig: Rig) -> None:
    first, _, _, last = rig.begun(1, 2, 2, 3)
    rig.threads.forget(2)
    rig.threads.forget(4)  # of which nothing is known
    assert rig.said == ["plan 2 dropped", "plan 2 dropped"]
    ended(first, last)
    assert rig.said[2:] == ["plan 1 compiled", "plan 3 compiled"]


def test_a_compilation_that_cannot_be_interrupted_is_left_behind(rig: Rig) -> None:
    first, second = rig.begun(1, 2)
    rig.threads.forget(1)
    ended(second)  # while the first is still at it
    ended(first)
    assert rig.said == ["plan 2 compiled", "plan 1 unwanted"]
    if sys.platform == "linux":
        assert (first.priority, second.priority) == (LOWEST, os.getpriority(os.PRIO_PROCESS, 0))


def test_one_that_can_be_interrupted_ends_before_the_next_begins(rig: Rig) -> None:
    first, second = rig.begun(1, 2)

    def interrupt() -> bool:
        first.go.set()
        return True

    rig.threads.interrupt = interrupt
    rig.threads.forget(1)
    ended(second)
    assert rig.said == ["plan 1 unwanted", "plan 2 compiled"]


def test_no_more_than_a_few_are_left_behind_at_a_time(rig: Rig) -> None:
    jobs = rig.begun(*range(LEFT + 2))
    *left, crowded, last = jobs
    for each in (*left, crowded):
        assert each.begun.wait(PATIENCE)
        rig.threads.forget(each.job.plan)
    assert not last.begun.wait(0.05)  # behind one for which there is no room among those that are left behind
    ended(left[0])
    ended(last)  # now there is
    ended(crowded, *left)
    assert rig.said[:2] == ["plan 0 unwanted", f"plan {LEFT + 1} compiled"]


def test_what_other_hosts_wait_for_is_compiled_all_the_same(rig: Rig) -> None:
    """On GPUs, hosts that compile one program wait for each other."""
    first, second = (rig.job(plan, shared=True) for plan in (1, 2))
    assert first.begun.wait(PATIENCE)
    rig.threads.interrupt = lambda: True
    rig.threads.forget(2)
    rig.threads.forget(1)
    ended(second, first)
    assert rig.said == ["plan 2 compiled", "plan 1 compiled"]


def test_an_error_is_told_and_the_next_is_compiled(rig: Rig) -> None:
    wrong = ValueError("nobody expected this")

    def run(wanted: Callable[[], bool]) -> None:
        raise wrong

    rig.threads.do(CompileJob(1, run, None))
    ended(rig.job(2))
    assert rig.errors == [wrong]
    rig.errors.clear()


def test_the_end_gives_up_what_waits(rig: Rig) -> None:
    first, second = rig.begun(1, 2)
    assert not rig.threads.end(0.01)
    ended(first)
    assert rig.threads.end(PATIENCE)
    assert not second.begun.is_set()

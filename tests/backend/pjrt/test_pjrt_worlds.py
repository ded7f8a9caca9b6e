"""Processes form one world through a coordination process, lose a member, and form another world."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from .test_pjrt import ENVIRONMENT, ROOT

ONE_DEVICE = ENVIRONMENT | {"XLA_FLAGS": "--xla_cpu_collective_timeout_seconds=10"}


class Process:
    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=ROOT, env=os.environ | (env or {}), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, *, kill: bool = False) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if kill:
            self.process.kill()
        with self.process:
            self.process.stdin.close()
            try:
                return self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


class Member(Process):
    def __init__(self, host: int) -> None:
        super().__init__("tests.backend.pjrt.pjrt_member", str(host), env=ONE_DEVICE)
        self.host = host

    def ask(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        while (line := self.line()) and not line.startswith("answer "):
            pass
        found, *wrong = json.loads(line.removeprefix("answer "))
        assert not wrong, wrong
        return found


class Stage:
    def __init__(self) -> None:
        self.stack = ExitStack()

    def coordination(self, members: int) -> tuple[Process, str]:
        service = Process("backend.coordination.service", "--members", str(members))
        self.stack.callback(self._end, service)
        return service, f"127.0.0.1:{int(service.line())}"

    def member(self, host: int) -> Member:
        member = Member(host)
        self.stack.callback(self._end, member)
        return member

    @staticmethod
    def _end(process: Process) -> None:
        if process.process.returncode is None:
            process.end(kill=True)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.stack:
        yield stage


def all_of(members: list[Member], *words: Any) -> list[Any]:
    for member in members:
        member.ask(*words)
    return [member.answer() for member in members]


def test_the_coordination_process_prints_its_port_and_ends_when_its_input_closes(stage: Stage) -> None:
    service, address = stage.coordination(2)
    assert int(address.rpartition(":")[2]) > 0
    assert service.end() == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [(["--members", "0"], "a world has at least one"), (["--members", "1", "--bind", "203.0.113.1"], "203.0.113.1")],
)
def test_a_coordination_process_that_cannot_start_says_why(words: list[str], text: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "backend.coordination.service", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert text in ran.stderr


def test_a_world_outlives_its_service_and_the_next_one_keeps_the_arrays_of_its_members(stage: Stage) -> None:
    first, second = members = [stage.member(0), stage.member(1)]
    old, address = stage.coordination(2)
    assert all_of(members, "reform", 0, address, [0, 1]) == [[0, 1], [0, 1]]
    all_of(members, "literal", "x", [0, 1], [1, 2, 3, 4])
    all_of([first], "literal", "mine", [0], [5, 6, 7, 8])
    assert all_of(members, "psum", "x", "y", [0, 1]) == [[], []]
    assert all_of(members, "read", "y") == [{"0": [11, 12]}, {"1": [13, 14]}]

    old.end(kill=True)  # a world that has formed does not need it
    assert all_of(members, "psum", "y", "z", [0, 1]) == [[], []]
    assert all_of(members, "read", "z") == [{"0": [61, 62]}, {"1": [63, 64]}]

    second.end(kill=True)
    first.ask("psum", "x", "z", [0, 1])
    code, text = first.answer()
    assert code == "peer", text

    _, address = stage.coordination(2)
    fresh = stage.member(1)
    assert all_of([first, fresh], "reform", 1, address, [0, 1]) == [[0, 1], [0, 1]]
    assert all_of([first], "read", "mine") == [{"0": [5, 6, 7, 8]}]
    all_of([fresh], "literal", "x", [0, 1], [1, 2, 3, 4])
    assert all_of([first, fresh], "psum", "x", "y", [0, 1]) == [[], []]
    assert all_of([first, fresh], "read", "y") == [{"0": [11, 12]}, {"1": [13, 14]}]
    assert all_of([first], "psum", "mine", "own", [0]) == [[]]
    assert all_of([first], "read", "own") == [{"0": [31, 32, 33, 34]}]

    assert all_of([first], "reform", 2, "", [0]) == [[0]]  # alone
    assert all_of([first], "psum", "mine", "own", [0]) == [[]]
    assert all_of([first], "read", "own") == [{"0": [31, 32, 33, 34]}]


def test_a_gang_whose_peer_never_comes_is_given_up_with_its_world(stage: Stage) -> None:
    first, second = members = [stage.member(0), stage.member(1)]
    many = [1.0] * 40_000  # so many that it does not run while it is enqueued
    all_of(members, "reform", 0, stage.coordination(2)[1], [0, 1])
    all_of(members, "literal", "x", [0, 1], many)
    all_of(members, "literal", "mine", [0, 1], [5, 6, 7, 8])
    assert all_of(members, "psum", "x", "y", [0, 1]) == [[], []]
    all_of([first], "start", "x", "z", [0, 1])
    while not all_of([first], "usage")[0]["outstanding"]:
        time.sleep(0.01)

    began = time.monotonic()
    all_of(members, "reform", 1, stage.coordination(2)[1], [0, 1])
    assert time.monotonic() - began < 5  # and not after the timeout of the collective
    assert [member["outstanding"] for member in all_of(members, "usage")] == [0, 0]
    assert all_of(members, "read", "mine") == [{"0": [5, 6]}, {"1": [7, 8]}]
    assert all_of(members, "psum", "mine", "y", [0, 1]) == [[], []]
    assert all_of(members, "read", "y") == [{"0": [31, 32]}, {"1": [33, 34]}]
    assert second.end() == first.end() == 0


def test_a_world_that_never_forms_is_left_for_the_next(stage: Stage) -> None:
    (first,) = members = [stage.member(0)]
    all_of(members, "reform", 0, "", [0])
    all_of(members, "literal", "mine", [0], [5, 6, 7, 8])
    all_of(members, "forming", 1, stage.coordination(2)[1], [0, 1])  # host 1 never comes
    time.sleep(0.3)
    began = time.monotonic()
    assert all_of(members, "reform", 2, "", [0]) == [[0]]
    assert time.monotonic() - began < 5
    assert all_of(members, "psum", "mine", "own", [0]) == [[]]
    assert all_of(members, "read", "own") == [{"0": [31, 32, 33, 34]}]
    assert first.end() == 0


def test_a_world_that_changes_during_a_compilation_leaves_no_backend_behind(stage: Stage) -> None:
    (member,) = members = [stage.member(0)]
    all_of(members, "reform", 0, stage.coordination(1)[1], [0])
    (before,) = all_of(members, "threads")
    _, address = stage.coordination(1)
    member.ask("compile_long", [0])
    member.answer()
    time.sleep(0.5)
    all_of(members, "reform", 1, address, [0])
    formed = time.monotonic()
    (ready,) = all_of(members, "compiled_long")
    assert formed < ready, "it was to be compiled meanwhile"
    deadline = time.monotonic() + 20
    while all_of(members, "backends") != [1] and time.monotonic() < deadline:
        time.sleep(0.5)
    assert all_of(members, "backends") == [1]
    assert all_of(members, "threads")[0] < before + 20


def test_worlds_that_are_over_but_still_in_memory_open_nothing(stage: Stage) -> None:
    """Gloo would keep it until they are gone. The members of two worlds died; a third world is the last one."""
    (first,) = members = [stage.member(0)]
    counts = []
    for epoch in range(3):
        peer = stage.member(1)
        all_of([*members, peer], "reform", epoch, stage.coordination(2)[1], [0, 1])
        all_of([*members, peer], "literal", "x", [0, 1], [1.0, 2.0])
        assert all_of([*members, peer], "psum", "x", "y", [0, 1]) == [[], []]
        counts.append(_sockets(first))
        all_of(members, "hold")
        peer.end(kill=True)
    deadline = time.monotonic() + 2
    most = 0
    while time.monotonic() < deadline:
        most = max(most, _sockets(first))
        time.sleep(0.1)
    each = counts[1] - counts[0]  # what a world that is over keeps: its listener, and JAX's own
    assert most <= counts[0] + 2 * each + 2, (counts, most)
    assert each < 8, counts


def _sockets(member: Member) -> int:
    found = 0
    folder = f"/proc/{member.process.pid}/fd"
    for number in os.listdir(folder):
        with suppress(FileNotFoundError):
            found += os.readlink(f"{folder}/{number}").startswith("socket:")
    return found


@pytest.mark.full
def test_worlds_that_are_over_are_gone_soon_on_a_machine_with_little_time(stage: Stage) -> None:
    """Each of six worlds ends while a gang waits for its peer: neither may keep threads, though both processes stand
    still for nine tenths of the time."""
    first, _ = members = [stage.member(0), stage.member(1)]
    all_of(members, "reform", 0, stage.coordination(2)[1], [0, 1])
    before = all_of(members, "threads")
    ended = threading.Event()
    starved = threading.Thread(target=_starve, args=(members, ended))
    starved.start()
    try:
        for epoch in range(1, 7):
            all_of(members, "literal", "x", [0, 1], [1.0] * 40_000)
            all_of([first], "start", "x", "z", [0, 1])
            all_of(members, "reform", epoch, stage.coordination(2)[1], [0, 1])
        assert all(len(os.listdir(f"/proc/{each.process.pid}/task")) < 4 * before[0] for each in members)
    finally:
        ended.set()
        starved.join()
    deadline = time.monotonic() + 20
    while all_of(members, "backends") != [1, 1] and time.monotonic() < deadline:
        time.sleep(0.5)
    assert all_of(members, "backends") == [1, 1]
    assert all(now < then + 20 for now, then in zip(all_of(members, "threads"), before, strict=True))


def _starve(members: list[Member], ended: threading.Event) -> None:
    while not ended.wait(0.02):
        for stop, seconds in ((signal.SIGSTOP, 0.18), (signal.SIGCONT, 0.0)):
            for each in members:
                os.kill(each.process.pid, stop)
            time.sleep(seconds)

"""Faults on machines of their own: their schedules, what carries them out, and a short schedule on machines.

Longer: `python -m tests.chaos --machines --minutes 10`. docs/testing.md explains it.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests import machines
from tests.chaos import memory_limit
from tests.chaos.campaign import touches
from tests.chaos.machine_faults import damage
from tests.chaos.machine_network import YEAR
from tests.chaos.schedule import ON_MACHINES, first, misfit, parse, text
from tests.test_chaos import ROOT, SHAPE, chaos

MACHINES = msgspec.structs.replace(SHAPE, machines=True, checked=True)


def test_all_kinds_of_faults_of_machines_are_drawn_and_read_back() -> None:
    drawn = first(6000, 0, MACHINES)
    assert {(fault.role, fault.kind) for fault in drawn} == {
        (role, kind) for role, kinds in ON_MACHINES.items() for kind in kinds
    }
    assert parse(text(drawn)) == drawn
    assert not misfit(drawn, MACHINES)
    links = {touches(fault) for fault in drawn if fault.role == "link"}
    one_way = {"agent>agent", "agent>controller", "controller>agent", "client>controller", "controller>client"}
    one_way |= {"agent>client", "client>agent"}
    both_ways = {"agent=agent", "agent=controller", "agent=client", "client=controller"}
    assert links == {f"cut {link}" for link in one_way | both_ways}
    assert {fault.file for fault in drawn if fault.kind == "flip"} == {"state", "agents", "code"}


def test_a_schedule_for_the_other_kind_of_cluster_is_refused() -> None:
    assert not misfit(parse("kill agent-0; cut agent-1"), SHAPE)
    assert "needs --machines" in misfit(parse("cut agent-0>agent-1"), SHAPE)
    assert "instead of --machines" in misfit(parse("cut agent-1 lasts=2"), MACHINES)


def test_a_file_of_the_state_is_damaged_and_what_it_was_is_kept(tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_bytes(b"0123456789")
    (flip, truncate, code) = parse("flip controller; truncate controller; flip controller file=code")
    path, was = damage(tmp_path, flip) or (None, b"")
    assert path is not None
    assert was == b"0123456789"
    flipped = int.from_bytes(path.read_bytes(), "big") ^ int.from_bytes(was, "big")
    assert flipped.bit_count() == 1
    damage(tmp_path, truncate)
    assert len(path.read_bytes()) == 5
    assert damage(tmp_path, code) is None


def test_a_clock_of_a_process_is_moved_while_it_runs(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", 0.0))
    code = "import time\nwhile input() == 'more': print(time.time(), time.time_ns(), flush=True)"
    path = ROOT / "tests" / "chaos" / "clock"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(path), "CHAOS_CLOCK": str(clock)},
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        years = []
        for moved in (0.0, YEAR, -YEAR):
            with clock.open("r+b") as file:
                file.write(struct.pack("d", moved))
            print("more", file=process.stdin, flush=True)
            seconds, nanoseconds = process.stdout.readline().split()
            years += [(float(seconds) - time.time()) / YEAR, (int(nanoseconds) / 1e9 - time.time()) / YEAR]
        print("end", file=process.stdin, flush=True)
    assert [round(year) for year in years] == [0, 0, 1, 1, -1, -1]


@pytest.mark.skipif(bool(memory_limit.why_not()), reason=memory_limit.why_not())
def test_a_process_that_takes_more_memory_than_its_limit_is_killed_and_no_group_stays() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input(); held = bytearray(1 << 28)"], stdin=subprocess.PIPE)
    limit = memory_limit.MemoryLimit([process.pid], 1 << 24)
    process.communicate(b"\n")
    limit.end()
    assert process.returncode == -signal.SIGKILL
    assert not list(limit.parent.glob(f"{memory_limit.MARK}{os.getpid()}-*"))


ECHO = """
import socket
server = socket.create_server(("", 7000))
print("listens", flush=True)
while True:
    with server.accept()[0] as came:
        while got := came.recv(1):
            came.sendall(got)
"""
ASK = """
import socket, time
with socket.create_connection(("b", 7000), 30) as asked:
    for _ in range(20):
        began = time.monotonic()
        asked.sendall(b"?")
        asked.recv(1)
        print(time.monotonic() - began)
"""


@pytest.mark.skipif(bool(machines.why_not()), reason=machines.why_not())
def test_a_slow_wire_is_late_and_loses_what_tcp_repeats() -> None:
    with machines.Machines(["a", "b"]) as both:

        def took() -> list[float]:
            said = subprocess.check_output(both.words("a", sys.executable, "-c", ASK), text=True)
            return [float(line) for line in said.split()]

        @contextmanager
        def slow(*words: str) -> Iterator[None]:
            port = ["ip", "netns", "exec", both._space(""), sys.executable, "-m", "tests.chaos.slow_wire"]
            port += ["--port", "port1", "--bridge", "bridge", *words]
            with ended(subprocess.Popen(port, stdout=subprocess.PIPE, cwd=ROOT), b"carries\n"):
                yield

        echo = subprocess.Popen(both.words("b", sys.executable, "-c", ECHO), stdout=subprocess.PIPE)
        with ended(echo):
            assert len(took()) == 20
            with slow("--late", "0.05"):
                assert min(took()) >= 0.05
            with slow("--loses", "0.15"):  # more, and TCP may wait for minutes
                assert max(took()) >= 0.1  # TCP waits before it repeats


@contextmanager
def ended(process: subprocess.Popen[bytes], says: bytes = b"") -> Iterator[None]:
    """It has said that it is ready, and is killed whatever happens."""
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().endswith(says)
            yield
        finally:
            process.kill()


@pytest.mark.skipif(bool(machines.why_not()), reason=machines.why_not())
def test_a_short_schedule_on_machines_breaks_no_promise_and_leaves_none() -> None:
    said = chaos("--machines", "--platform", "timed", "--islands", "1", "--lease", "2", "--schedule",
                 "cut agent-0=controller lasts=3; address agent-1 restart=0.2; delay controller lasts=2;"
                 "clock agent-0 lasts=1; disk controller lasts=1")  # fmt: skip
    assert "address agent" in said
    assert "processes of this machine instead" not in said


@pytest.mark.full
@pytest.mark.skipif(bool(machines.why_not()), reason=machines.why_not())
def test_ten_minutes_on_machines_break_no_promise() -> None:
    chaos("--machines", "--no-trust-clients", "--minutes", "10", "--seed", "1")

"""A door and its programs, when one of them ends: killed, told to end, or started again; and several at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backend.admin.children import environment
from experiments.bench.frame.door_server import Door, opened

from .jax_programs import program, until
from .program_runs import DEVICES, output, python

PATIENCE = 60.0  # seconds
MIB = 1 << 20

CALLS = """
import jax, sys
from jax.extend.backend import clear_backends
x, f = jax.numpy.float32(0), jax.jit(lambda x: x + 1)
print(float(f(x)), flush=True)
try:
    while True:
        x = f(x)
        x.block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print("error", str(error).partition(":")[0], "clear_backends()" in str(error), flush=True)
sys.stdin.readline()
clear_backends()
jax.clear_caches()
print(float(jax.numpy.float32(3) + 1), flush=True)
"""

HOLDS = """
import jax, numpy as np, sys, time
print(jax.numpy.ones(3).sum(), flush=True)
sys.stdin.readline()
held = [jax.block_until_ready(jax.device_put(np.ones(1 << 24, np.float32))) for _ in range(6)]
print(len(held), flush=True)
time.sleep(300)
"""


def memory(pid: int) -> int:
    """Bytes that are resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def shared() -> Iterator[Door]:
    """A door that outlives its programs."""
    with opened(DEVICES) as door:
        yield door
        assert door.child.process.poll() is None


def test_a_program_hears_at_once_that_its_door_was_killed_and_can_open_a_session_with_the_next_one() -> None:
    with opened(2) as door, program(CALLS, door.env) as found:
        assert found.line() == "1.0"
        door.child.process.kill()
        begun = time.monotonic()
        assert found.line() == "error UNAVAILABLE True"  # with how to go on
        assert time.monotonic() - begun < PATIENCE  # not the two minutes of a connection that is being made
        door.child.process.wait(PATIENCE)
        door.again()
        found.go_on()
        assert found.line() == "4.0"
        assert found.process.wait(PATIENCE) == 0, found.errors()


def test_an_interrupted_wait_says_so_in_a_traceback_and_nothing_more(shared: Door) -> None:
    with program(CALLS, shared.env | {"TF_CPP_MIN_LOG_LEVEL": "1"}) as found:
        assert found.line() == "1.0"
        found.end(signal.SIGINT)
        said = found.errors().splitlines()
    assert said[-1] == "KeyboardInterrupt"
    assert not any("stack trace" in line for line in said)


def test_a_killed_program_leaves_nothing_in_the_door(shared: Door) -> None:
    with program(HOLDS, shared.env) as found:
        assert found.line() == "3.0"
        before = memory(shared.child.pid)
        found.go_on()
        assert found.line() == "6"
        assert memory(shared.child.pid) > before + 6 * 60 * MIB
        found.end()
    until(lambda: memory(shared.child.pid) < before + 100 * MIB, "the arrays of a program that is gone are kept")
    assert output(python("-c", "import jax; print(jax.numpy.ones(4).sum())", env=shared.env)) == "4.0\n"


def test_several_programs_at_once_do_not_see_each_other(shared: Door) -> None:
    code = "import sys, jax; f = jax.jit(lambda x: x * 2)\nx = jax.numpy.float32(sys.argv[1])\n"
    code += "for _ in range(100): x = f(x) / 2\nprint(float(x), len(jax.live_arrays()))"
    words = [sys.executable, "-c", code]
    env = environment({"TF_CPP_MIN_LOG_LEVEL": "3"} | shared.env)
    start: Any = partial(subprocess.Popen, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    alone = start([*words, "7"]).communicate(timeout=4 * PATIENCE)[0].split()
    several = [start([*words, str(each)]) for each in range(2)]
    said = [each.communicate(timeout=4 * PATIENCE)[0].split() for each in several]
    assert alone[0] == b"7.0"
    assert said == [[b"%d.0" % each, alone[1]] for each in range(2)]

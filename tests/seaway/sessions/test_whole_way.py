"""How many of our functions a call that is waited for, or read, takes: in the user's process, and in the host's."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import seaway as sw
from seaway.sessions.connected import port

ROOT = __file__.partition(f"{os.sep}tests{os.sep}")[0] + os.sep
CALLS = 50
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")  # which Python 3.11 calls


class Counting:
    """Counts calls of our functions, in threads that begin while it is installed."""

    def __init__(self) -> None:
        self.number, self.on = 0, False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            self.number += frame.f_code.co_name not in INLINED


@pytest.fixture
def counting() -> Iterator[Counting]:
    found = Counting()
    threading.setprofile(found)
    sys.setprofile(found)
    yield found
    sys.setprofile(None)
    threading.setprofile(None)


def wait(x: sw.Array) -> None:
    x.block_until_ready()


def looped(step: Callable[[sw.Array], sw.Array], x: sw.Array, then: Callable[[sw.Array], object]) -> sw.Array:
    for _ in range(CALLS):
        x = step(x)
        then(x)
    return x


@pytest.mark.parametrize(("then", "most"), [(wait, 327), (float, 720)], ids=["waited for", "read"])
def test_a_call_is_short_in_the_users_process(
    then: Callable[[sw.Array], object], most: int, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "LATE", 10**10)  # what is dropped goes with the next call, however slow this machine is
    step = sw.jit(lambda x: x + 1, devices=1)
    with sw.local():
        x = step(np.float32(0))
        x = looped(step, x, then)
        counting.on = True
        x = looped(step, x, then)
        counting.on = False
        assert float(x) == 2 * CALLS + 1
    assert 100 < counting.number / CALLS < most


# Counts in a host's process, which writes down now and then how many there were.
IN_ANOTHER = """
import os, sys, threading, time

ROOT, path = os.environ["COUNTED"], os.environ["COUNTS"]
number = 0

def counting(frame, event, argument):
    global number
    if event == "call" and frame.f_code.co_filename.startswith(ROOT):
        number += frame.f_code.co_name not in INLINED

def write():
    while True:
        time.sleep(0.05)
        with open(path + "/new", "w") as file:
            file.write(str(number))
        os.replace(path + "/new", path + "/number")

if any("agent" in word for word in sys.orig_argv):
    threading.setprofile(counting)
    sys.setprofile(counting)
    threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.parametrize(("then", "most"), [(wait, 220), (float, 540)], ids=["waited for", "read"])
def test_a_call_is_short_in_the_hosts_process(
    then: Callable[[sw.Array], object], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(IN_ANOTHER.replace("INLINED", repr(INLINED)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("COUNTED", ROOT)
    monkeypatch.setenv("COUNTS", str(tmp_path))

    def counted() -> int:
        time.sleep(0.2)  # longer than it takes to write it down
        return int((tmp_path / "number").read_text())

    step = sw.jit(lambda x: x + 1, devices=1)
    with sw.local():
        x = step(np.float32(0))
        x = looped(step, x, then)
        before = counted()
        x = looped(step, x, then)
        number = (counted() - before) / CALLS
        assert float(x) == 2 * CALLS + 1
    assert 100 < number < most

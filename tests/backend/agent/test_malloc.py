"""Freed memory is used again. Each test runs in processes of its own, because the setting is for a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seaway as sw
from backend.agent.agent_machine import OWN, keep_what_is_freed

PAGE = os.sysconf("SC_PAGE_SIZE")
NBYTES, MANY = 1 << 20, 64
PAGES = NBYTES // PAGE * MANY  # of all arrays
# several threads make and free arrays, each with its own heap; there are enough rounds for each heap to reach its size
ROUNDS = 60

# Makes and frees arrays again and again; prints how many pages of the last ones were new to the process.
FAULTS = f"""
import resource, threading
import numpy as np
from backend.agent.agent_machine import keep_what_is_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = [np.ones({NBYTES}, np.uint8) for _ in range({MANY})]
    del made
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def work():
    for _ in range(4):
        last = faults()
    print(last)

print(keep_what_is_freed())
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def output_of_child(**more: str) -> list[str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith(OWN)} | more
    ended = subprocess.run(
        [sys.executable, "-c", FAULTS], env=given, capture_output=True, text=True, check=True, timeout=60
    )
    return ended.stdout.split()


def test_freed_memory_is_used_again_by_any_thread() -> None:
    kept, main, thread = output_of_child()
    assert kept == "True"
    assert int(main) < PAGES / 4
    assert int(thread) < PAGES / 4


@pytest.mark.parametrize("name", ["MALLOC_ARENA_TEST", "GLIBC_TUNABLES"])
def test_a_setting_of_the_user_is_left_as_it_is(name: str) -> None:
    kept, main, _ = output_of_child(**{name: "8" if name.startswith("MALLOC") else "glibc.malloc.arena_test=8"})
    assert kept == "False"
    assert int(main) > PAGES / 2, "else there is nothing to keep, and the test above proves nothing"


def test_nothing_happens_on_a_system_without_malloc_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_what_is_freed({})


def test_an_agent_computes_into_pages_that_it_has_used_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(OWN)]:
        monkeypatch.delenv(name)
    with sw.local(platform="cpu") as session:
        add = sw.pmap(lambda x: x + x[::-1], devices=sw.slice(devices=1))
        x = sw.put(np.ones((1, NBYTES // 4), np.float32), devices=1)
        (agent,) = session.driver.agents  # type: ignore[attr-defined]

        def faults() -> int:
            before = faults_of(agent.pid)
            last = [add(x) for _ in range(MANY)]
            sw.block_until_ready(last)
            return faults_of(agent.pid) - before

        assert any(faults() < PAGES / 4 for _ in range(ROUNDS)), "without the setting, half of them or more, for ever"


def faults_of(pid: int) -> int:
    """The number of page faults of a process that needed no disk."""
    behind_its_name = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    return int(behind_its_name.split()[7])

"""A child that the kernel kills for lack of memory: its end says so, if the kernel's counters do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from backend.admin.children import MOUNTED, ROOT, Child

LIMIT = 256 << 20  # bytes: enough for a parent, and not for its child
PARENT = """
import subprocess, sys
from pathlib import Path
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
from backend.admin.children import Child
for code in ("import os; os.kill(os.getpid(), 9)", "bytes(1) * (1 << 30)"):
    code = "open('/proc/self/oom_score_adj', 'w').write('1000'); input(); " + code
    child = Child("agent-0", subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE), Path("/dev/null"))
    child.process.communicate(b"go\\n")
    print(child.fate())
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own, with little memory, and without swap."""
    for parent, limits in (
        (MOUNTED, ("memory.max", "memory.swap.max")),
        (MOUNTED / "memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")),
    ):
        if not (parent / "cgroup.procs").exists():
            continue
        found = parent / f"seaway-test-{os.getpid()}"
        try:
            found.mkdir()
            (found / limits[0]).write_text(str(LIMIT), encoding="ascii")
        except OSError:
            with suppress(OSError):
                found.rmdir()
            continue
        with suppress(OSError):
            (found / limits[1]).write_text("0" if "swap.max" in limits[1] else str(LIMIT), encoding="ascii")
        yield found
        found.rmdir()
        return
    pytest.skip("control groups of memory cannot be made here")


def test_a_kill_by_the_kernel_for_lack_of_memory_is_told_from_another(group: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", PARENT, str(group)], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    ).stdout
    by_somebody, by_the_kernel = said.splitlines()
    assert by_somebody == "was ended by SIGKILL: if nobody did this, memory ran out"
    assert by_the_kernel.startswith("was ended by SIGKILL, probably by the kernel for lack of memory (since it began, ")
    assert f"{group}/memory." in by_the_kernel
    assert by_the_kernel.endswith(" rose by 1): give this machine or container more memory, or run less on it")


def test_without_counters_only_the_signal_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROUPS", "MACHINE"):
        monkeypatch.setattr(f"backend.admin.children.{name}", tmp_path / "missing")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        child = Child("agent-0", process, tmp_path / "log")
        process.kill()
        process.wait()
    assert child.fate() == "was ended by SIGKILL: if nobody did this, memory ran out"

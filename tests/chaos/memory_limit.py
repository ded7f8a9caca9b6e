"""A memory limit on processes that run, by a control group of theirs (cgroup v1 or v2). Beyond it, the kernel kills."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

MARK = "seaway-chaos-"  # groups: this, the pid of the process that made them, and a number
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryLimit:
    """What these processes get from now on counts: what they have does not."""

    def __init__(self, pids: list[int], most: int) -> None:
        parent = _parent()
        assert parent is not None, why_not()
        self._group = parent / f"{MARK}{os.getpid()}-{time.monotonic_ns()}"
        self._group.mkdir()
        limit = "memory.max" if _v2(parent) else "memory.limit_in_bytes"
        (self._group / limit).write_text(str(most))
        self.parent = parent
        _move(pids, self._group)

    def end(self) -> None:
        _remove(self._group)


@cache
def why_not() -> str:
    """Why memory cannot be limited here; "" if it can."""
    parent = _parent()
    if parent is None:
        return "no control group of memory here"
    sweep()
    trial = parent / f"{MARK}{os.getpid()}-trial"
    try:
        trial.mkdir()
        limited = any((trial / name).exists() for name in ("memory.max", "memory.limit_in_bytes"))
        trial.rmdir()
    except OSError as error:
        return f"no control group of memory here: {error}"
    return "" if limited else "no control group of memory here: it is not given to groups below"


def sweep() -> None:
    """Removes the groups of processes that were killed."""
    parent = _parent()
    for group in parent.glob(f"{MARK}*") if parent is not None else ():
        if not Path("/proc", group.name.removeprefix(MARK).partition("-")[0]).exists():
            _remove(group)


def _parent() -> Path | None:
    """The group that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names == "memory" or (not names and (V2 / "cgroup.controllers").exists()):
            # in a container, the path may be that of the machine outside
            found = (V1 if names else V2) / path.lstrip("/")
            return found if found.exists() else V1 if names else V2
    return None


def _v2(parent: Path) -> bool:
    return (parent / "cgroup.controllers").exists()


def _move(pids: list[int], group: Path) -> None:
    for pid in pids:
        with suppress(OSError):  # it has ended
            (group / "cgroup.procs").write_text(str(pid))


def _remove(group: Path) -> None:
    with suppress(OSError):
        _move([int(pid) for pid in (group / "cgroup.procs").read_text().split()], group.parent)
    for _ in range(50):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)  # what was killed is still there

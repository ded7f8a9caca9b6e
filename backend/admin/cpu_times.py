"""CPU time of processes on this machine and of their threads, as Linux counts it, in nanoseconds.

Neighbours: `pjrt.worker_thread`, which gives threads names; `traffic`, which counts what they did in that time.
"""

from __future__ import annotations

import time
from pathlib import Path


def threads_of(pid: int) -> dict[int, tuple[str, int]]:
    """The living threads of a process: their names, and the CPU time of each."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:
            continue  # the thread has ended
        found[int(task.name)] = name, int(spent)
    return found


def cpu_of(pid: int) -> int:
    """CPU time of a process with all its threads, ended ones too. Its clock's number: clock_getcpuclockid(3)."""
    return time.clock_gettime_ns((~pid << 3) | 2)

"""CPU time of processes of this machine and of their threads, as Linux counts it: nanoseconds.

Neighbours: `pjrt.worker_thread`, which names threads so that they can be told apart; `traffic`, for what they did
meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path


def threads_of(pid: int) -> dict[int, tuple[str, int]]:
    """Of a process: its living threads' names, and nanoseconds of CPU that each has had."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:
            continue  # it ended meanwhile
        found[int(task.name)] = name, int(spent)
    return found


def sleeps_of(pid: int, thread: int) -> int:
    """How often a thread has gone to sleep, because it had nothing to do: and so, how often it has woken up."""
    for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "voluntary_ctxt_switches":
            return int(value)
    raise OSError(f"Linux does not say how often thread {thread} of process {pid} has slept")


def cpu_of(pid: int) -> int:
    """Of a process with all its threads, those that have ended too: nanoseconds. Its clock's number is made of its own
    (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)

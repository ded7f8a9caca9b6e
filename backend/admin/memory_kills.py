"""Whether the kernel killed a process for lack of memory, as far as its counters tell.

    kills = MemoryKills()      when a child starts
    kills.fate()               when it was killed: how, as text

The counters are those of this process's control group, which its children share (`memory.events` of version 2,
`memory.oom_control` of version 1), and of the whole machine (`/proc/vmstat`). Neighbours: `children`;
`sandbox.checker_process`.
"""

from __future__ import annotations

from pathlib import Path

GROUPS = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")
MACHINE = Path("/proc/vmstat")


class MemoryKills:
    """The counters as they were when this was made."""

    def __init__(self) -> None:
        self._before = _counts()

    def fate(self) -> str:
        """What to say of a child that was ended by SIGKILL since then."""
        for source, count in _counts().items():
            if (more := count - self._before.get(source, count)) > 0:
                return (
                    f"was ended by SIGKILL, probably by the kernel for lack of memory (since it began, oom_kill in "
                    f"{source} rose by {more}): give this machine or container more memory, or run less on it"
                )
        return "was ended by SIGKILL: if nobody did this, memory ran out"


def _counts() -> dict[Path, int]:
    """Kills for lack of memory so far, by the file that says so; the control group comes first."""
    found: dict[Path, int] = {}
    for path in (*_of_groups(), MACHINE):
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            if line.startswith("oom_kill "):
                found[path] = int(line.split()[1])
    return found


def _of_groups() -> list[Path]:
    try:
        lines = GROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for _, kinds, group in (line.split(":", 2) for line in lines):
        inside = group.lstrip("/")
        if not kinds:
            found += [MOUNTED / inside / "memory.events", MOUNTED / "unified" / inside / "memory.events"]
        elif "memory" in kinds.split(","):
            found.append(MOUNTED / kinds / inside / "memory.oom_control")
            found.append(MOUNTED / kinds / "memory.oom_control")  # as a container sees its own
    return found

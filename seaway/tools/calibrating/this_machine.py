"""This machine: the number of cores we may use, its memory's speed, and a fixed piece of Python to tell its own."""

import os
import platform
import time
from pathlib import Path

import numpy as np

from .fitting import FittedCost, middle

TIMES = 25
COPIED = 16 << 20  # bytes: more than caches hold
CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def counted(rounds: int) -> int:
    """The reference (`pace`): integers, a dictionary and calls, like our own code."""
    seen: dict[int, int] = {}
    total = 0
    for number in range(rounds):
        key = number * 7919 % 1009
        total = mixed(total, seen.get(key, number))
        seen[key] = total
    return total


def mixed(one: int, other: int) -> int:
    return (one * 31 + other) & 0xFFFFFFFF


def copied() -> FittedCost:
    """Nanoseconds to copy a byte in memory."""
    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    found = []
    for _ in range(TIMES):
        begun = time.perf_counter_ns()
        np.copyto(target, source)
        found.append((time.perf_counter_ns() - begun) / COPIED)
    return middle(found[1:])


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> tuple[int, str]:
    """(cores that we may use, a text that says how that is known)."""
    allowed = len(os.sched_getaffinity(0))
    quota = cgroup_cores()
    if quota is not None and quota < allowed:
        return max(1, int(quota)), f"the cgroup's quota of {quota:g} of {allowed} cores"
    return allowed, f"{allowed} cores this process may run on; no cgroup allows less"


def cgroup_cores(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Cores that the narrowest cgroup above us allows; None if there is no limit, or it cannot be read."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [quota for folder in folders(root, lines) if (quota := quota_in(folder)) is not None]
    return min(found, default=None)


def folders(root: Path, lines: list[str]) -> list[Path]:
    """Folders of the cgroups in these lines, and of all above: `0::/path` (version 2), `4:cpu,cpuacct:/path` (1)."""
    found: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "cpu" not in kinds.split(","):
            continue
        base = root / kinds if kinds else root
        here = base / path.strip().lstrip("/")
        found += [here, *(above for above in here.parents if above == base or base in above.parents)]
    return list(dict.fromkeys(found))


def quota_in(folder: Path) -> float | None:
    """Cores, from `cpu.max` ("150000 100000", "max 100000") or `cpu.cfs_quota_us` (-1: none)."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        except OSError:
            return None
    try:
        allowed, each = int(quota), int(period)
    except ValueError:
        return None  # "max"
    return allowed / each if allowed > 0 and each > 0 else None

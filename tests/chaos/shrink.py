"""Finds the shortest part of a schedule that still fails: leaves faults out, halves first, as long as it still
fails."""

from __future__ import annotations

import time
from collections.abc import Callable

from .schedule import Schedule


def shrink(
    schedule: Schedule, fails: Callable[[Schedule], bool], seconds: float, now: Callable[[], float] = time.monotonic
) -> Schedule:
    """Shrink a schedule. `fails` plays one on a cluster of its own. Takes at most so many seconds, and what the last
    try takes."""
    end = now() + seconds
    size = max(1, len(schedule) // 2)
    while len(schedule) > 1:
        at, changed = 0, False
        while at < len(schedule) and now() < end:
            fewer = schedule[:at] + schedule[at + size :]
            if fewer and fails(fewer):
                schedule, changed = fewer, True
            else:
                at += size
        if now() >= end or (size == 1 and not changed):
            break
        size = max(1, size // 2)
    return schedule

"""Makes a failing case smaller: it deletes actions, halves first, as long as the case fails in the same way."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import msgspec

from .case import Case
from .play import Result, play


def shrink(case: Case, kind: str, seconds: float = 60.0, runs: Callable[[Case], Result] = play) -> Case:
    """Return a smaller case with the same kind of failure, found within so many seconds of CPU."""
    end = process_time() + seconds
    size = max(1, len(case.actions) // 2)
    while True:
        at, changed = 0, False
        while at < len(case.actions) and process_time() < end:
            fewer = case.actions[:at] + case.actions[at + size :]
            smaller = msgspec.structs.replace(case, actions=fewer)
            if runs(smaller).kind == kind:
                case, changed = smaller, True
            else:
                at += size
        if process_time() >= end or (size == 1 and not changed):
            return case
        size = max(1, size // 2)

"""How long computations take, as far as the controller's trace shows it: better than any estimate of the next.

Which gangs show it, and how: `core.record.durations`. The median counts, by a computation's name.

Neighbours: `server` tells it to sessions elsewhere; `seaway.sessions.connected` prices by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from core.record import FAILED, PLACEHOLDER, Over, Trace, taken

LAST = 1000  # gangs that are looked at


def durations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Name -> (executions, their median time in nanoseconds). Under the lock of whoever writes the trace."""
    found = taken(_last(trace), trace.places)
    return {trace.strings.words[step]: (len(took), round(median(took))) for step, took in found.items()}


def _last(trace: Trace) -> Iterator[Over[int]]:
    names = ("ended", "entered", "place", "step", "flags")
    ended, entered, place, step, flags = (trace.gangs.column(name) for name in names)
    for row in range(max(0, len(trace.gangs) - LAST), len(trace.gangs)):
        if ended[row] >= 0:
            failed = bool(flags[row] & (FAILED | PLACEHOLDER))
            yield Over(ended[row], entered[row], place[row], step[row], failed)

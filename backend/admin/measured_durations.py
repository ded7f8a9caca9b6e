"""How long computations took, by the controller's trace: a better estimate of the next execution than any model.

`core.record.durations` selects the gangs that show it. The result is one time for each computation's name.

Neighbours: `server` sends it to sessions; `seaway.sessions.connected` uses it as the computations' costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.record import FAILED, PLACEHOLDER, EndedGang, Trace, taken, typical

LAST = 1000  # most gangs that are read, the latest ones


def durations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Name -> (executions, typical time in nanoseconds). Call it under the lock that protects the trace."""
    found = taken(_last(trace), trace.places)
    return {trace.strings.words[step]: (len(took), typical(took)) for step, took in found.items()}


def _last(trace: Trace) -> Iterator[EndedGang[int]]:
    names = ("ended", "entered", "place", "step", "flags")
    ended, entered, place, step, flags = (trace.gangs.column(name) for name in names)
    for row in range(max(0, len(trace.gangs) - LAST), len(trace.gangs)):
        if ended[row] >= 0:
            failed = bool(flags[row] & (FAILED | PLACEHOLDER))
            yield EndedGang(ended[row], entered[row], place[row], step[row], failed)

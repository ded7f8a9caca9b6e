"""How long computations took, by the controller's trace: a better estimate of the next execution than any model.

`core.record.durations` selects the gangs that show it. The result is one time for each step's name: over all clients
(`durations`), or for each client by itself (`durations_of`), since two clients may give one name to different steps.

Neighbours: `server` sends it to sessions; `seaway.sessions.connected` and the door use it as the computations' costs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import TypeVar

from core.record import FAILED, PLACEHOLDER, EndedGang, Trace, taken, typical

K = TypeVar("K", bound=Hashable)
LAST = 1000  # most gangs that are read, the latest ones
NOBODY = -1  # the client of a gang whose run is not in the trace any more


def durations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Name -> (executions, typical time in nanoseconds). Call it under the lock that protects the trace."""
    found = taken(_last(trace, trace.gangs.column("step").__getitem__), trace.places)
    return {trace.strings.words[step]: (len(took), typical(took)) for step, took in found.items()}


def durations_of(trace: Trace, clients: Collection[int]) -> dict[int, dict[str, tuple[int, int]]]:
    """The same for each of these clients that has a gang which shows it, by the controller's numbers of them."""
    step, run, client = trace.gangs.column("step"), trace.gangs.column("run"), trace.runs.column("client")

    def which(row: int) -> tuple[int, int]:
        return client[run[row]] if run[row] >= 0 else NOBODY, step[row]

    found: dict[int, dict[str, tuple[int, int]]] = {}
    for (number, word), took in taken(_last(trace, which), trace.places).items():
        if number in clients:
            found.setdefault(number, {})[trace.strings.words[word]] = len(took), typical(took)
    return found


def _last(trace: Trace, which: Callable[[int], K]) -> Iterator[EndedGang[K]]:
    """`which`: what the gang of a row executed."""
    ended, entered, place, flags = (trace.gangs.column(name) for name in ("ended", "entered", "place", "flags"))
    for row in range(max(0, len(trace.gangs) - LAST), len(trace.gangs)):
        if ended[row] >= 0:
            failed = bool(flags[row] & (FAILED | PLACEHOLDER))
            yield EndedGang(ended[row], entered[row], place[row], which(row), failed)

"""How long computations take, as far as the controller's trace shows it: better than any estimate of the next.

Devices say when a gang has ended, and not when it began. But of one that was waiting behind another on the same devices
that is known: when the other ended. Such are counted, and no others, in which the way of messages would be, too. Gangs
that were reported together share their time evenly.

Neighbours: `server` tells it to sessions elsewhere; `seaway.connected` prices by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from statistics import median
from typing import NamedTuple

from core import spans
from core.trace import FAILED, PLACEHOLDER, Trace

LAST = 1000  # gangs that are looked at


class Gang(NamedTuple):
    ended: int
    entered: int
    place: int
    step: int
    failed: bool


def durations(trace: Trace) -> dict[str, tuple[int, int]]:
    """Name -> (executions, their median time in nanoseconds). Under the lock of whoever writes the trace."""
    found: dict[int, list[int]] = {}
    for step, took in _samples(trace, _last(trace)):
        found.setdefault(step, []).append(took)
    return {trace.strings.words[step]: (len(took), round(median(took))) for step, took in found.items()}


def _last(trace: Trace) -> list[Gang]:
    """In the order in which they ended."""
    names = ("ended", "entered", "place", "step", "flags")
    ended, entered, place, step, flags = (trace.gangs.column(name) for name in names)
    return sorted(
        Gang(ended[row], entered[row], place[row], step[row], bool(flags[row] & (FAILED | PLACEHOLDER)))
        for row in range(max(0, len(trace.gangs) - LAST), len(trace.gangs))
        if ended[row] >= 0
    )


def _samples(trace: Trace, gangs: list[Gang]) -> Iterator[tuple[int, int]]:
    """(step, its time)."""
    last: dict[int, int] = {}  # place -> when the last gang there ended
    for ended, together in groupby(gangs, lambda gang: gang.ended):
        by_place: dict[int, list[Gang]] = {}
        for gang in together:
            by_place.setdefault(gang.place, []).append(gang)
        for place, group in by_place.items():
            begun = last.get(place, -1)
            if begun >= 0 and not any(gang.failed for gang in group):
                behind = all(gang.entered < begun for gang in group)
                if behind and not _disturbed(trace, place, {**last, **dict.fromkeys(by_place, ended)}, begun):
                    yield from ((gang.step, (ended - begun) // len(group)) for gang in group)
        for place in by_place:
            last[place] = ended


def _disturbed(trace: Trace, place: int, last: dict[int, int], begun: int) -> bool:
    """Somebody else has had some of these devices since."""
    mine = trace.places.get(place)
    return mine is None or any(
        other != place and ended > begun and spans.overlap(trace.places[other].devices, mine.devices)
        for other, ended in last.items()
    )

"""When gangs waited and ran, one record a gang, for spans: the same for a saved trace and for a session that is open.

Neighbours: `facts`, the columns; `otel`, which makes spans of the records; `seaway.telemetry`, of sessions. It knows
nothing of OpenTelemetry. The functions that matter: `gang_spans`, `run_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from core.model import spans
from core.record import trace as core_trace

from .facts import Facts
from .times import Ints

Attributes = dict[str, Any]


class GangSpan(NamedTuple):
    """Times are nanoseconds by the trace's clock; `ready` and `entered` are below 0 if nobody recorded them."""

    run: int  # its row in `runs`
    name: str
    ready: int  # its inputs are known, and it may enter its island's order
    entered: int
    start: int
    end: int
    about: Attributes


def run_rows(facts: Facts, window: tuple[int, int] | None, most: int | None) -> Ints:
    """Runs that have ended, and that overlap the window: all, or `most` of them, evenly spread."""
    begin, end = facts.runs["submitted"], facts.runs["ended"]
    low, high = window or (0, int(np.iinfo(np.int64).max))
    found = np.flatnonzero((end >= low) & (begin < high) & (facts.run_clients >= 0))
    if most is None or most >= len(found):
        return found.astype(np.int64)
    return found[np.linspace(0, len(found) - 1, most).astype(np.int64)].astype(np.int64)


def gangs_of(facts: Facts, runs: Ints) -> Ints:
    """Rows of the gangs that these runs ran, in the order of their islands."""
    ran = np.flatnonzero((facts.end >= 0) & np.isin(facts.gangs["run"], runs))
    return ran[np.argsort(facts.gangs["seq"][ran], kind="stable")].astype(np.int64)


def gang_spans(facts: Facts, rows: Iterable[int]) -> Iterator[GangSpan]:
    gangs, machines = facts.gangs, facts.machines
    names = {island.index: island.name for island in machines.islands}
    spent = facts.spent()
    for row in rows:
        place = facts.places.get(int(gangs["place"][row]))
        flags = int(facts.flags[row])
        about: Attributes = {
            "seaway.gang": int(gangs["seq"][row]),
            "seaway.island": names.get(int(gangs["island"][row]), ""),
            "seaway.devices": int(facts.sizes[row]),
            "seaway.device_range": "" if place is None else spans.text(place.devices),
            "seaway.device_time_ns": int(spent[row]),
        }
        if facts.skew[row] >= 0:
            about["seaway.skew_ns"] = int(facts.skew[row])
        inferred = [name for name, bit in core_trace.TIMES.items() if flags & bit]
        if inferred:
            about["seaway.inferred"] = inferred
        if flags & core_trace.FAILED:
            about["seaway.failed"] = True
        yield GangSpan(
            int(gangs["run"][row]), str(facts.words[gangs["step"][row]]), int(gangs["ready"][row]),
            int(gangs["entered"][row]), int(facts.start[row]), int(facts.end[row]), about,
        )  # fmt: skip

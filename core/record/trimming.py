"""Drops the oldest runs from a trace that has become too large, with all that belongs to them.

Runs are dropped in the order in which they were submitted. A run that has not ended stays, with all its rows. Rows
that belong to no run (puts, gets, levels of memory, reservations) are dropped if they ended before the last of the
dropped runs did. From that time on (`Trace.since`) the trace is complete.

Neighbour: `trace`, which calls `trim` when it exceeds its limit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .tables import Lists, Strings, Table

if TYPE_CHECKING:
    from .trace import Trace

SPARE = 4  # a quarter of the limit is freed, so that trimming is rare
NAMES = ("label", "step", "program", "code", "cause", "node")  # columns of interned strings


def trim(trace: Trace, limit: int) -> None:
    """Drop runs until the trace takes three quarters of `limit`, or only runs that have not ended are left."""
    ended = trace.runs.column("ended")
    droppable = [row for row, at in enumerate(ended) if at >= 0]
    if not droppable:
        return
    size = trace.nbytes + trace.strings.nbytes
    share = min(1.0, (size - limit + limit // SPARE) / size)
    drop = droppable[: max(1, round(len(droppable) * share))]
    trace.since = max(trace.since, max(ended[row] for row in drop) + 1)
    _drop_runs(trace, drop)


def _drop_runs(trace: Trace, drop: Sequence[int]) -> None:
    dropped = set(drop)
    kept = [row for row in range(len(trace.runs)) if row not in dropped]
    moved = {row: number for number, row in enumerate(kept)}
    _keep(trace, "runs", kept)
    for name in ("gangs", "transfers"):
        table = trace.tables[name]
        runs, ended = table.column("run"), table.column("ended")
        rows = [
            row for row, run in enumerate(runs) if (run in moved if run >= 0 else not 0 <= ended[row] < trace.since)
        ]
        _keep(trace, name, rows)
        table.replace("run", [moved.get(run, -1) for run in table.column("run")])
    kept = [row for row, at in enumerate(trace.reservations.column("until")) if not 0 <= at < trace.since]
    _keep(trace, "reservations", kept)
    _drop_clients(trace)
    _drop_levels(trace)
    _keep_arrivals(trace)
    _keep_words(trace)


def _keep(trace: Trace, name: str, rows: Sequence[int]) -> None:
    """Keep only these rows of a table, and count the others."""
    trace.dropped[name] += len(trace.tables[name]) - len(rows)
    trace.tables[name].keep(rows)


def _drop_clients(trace: Trace) -> None:
    """Drop the clients that are gone and have no row left."""
    busy = {client for table in (trace.runs, trace.transfers, trace.reservations) for client in table.column("client")}
    clients, closed = trace.clients.column("client"), trace.clients.column("closed")
    _keep(trace, "clients", [row for row, at in enumerate(closed) if at < 0 or clients[row] in busy])


def _drop_levels(trace: Trace) -> None:
    """Drop old levels of memory, but keep the last one of each place before `since`: it is the level at that time."""
    times, places = trace.memory.column("at"), trace.memory.column("place")
    last = {places[row]: row for row, at in enumerate(times) if at < trace.since}
    lasting = set(last.values())
    _keep(trace, "memory", [row for row, at in enumerate(times) if at >= trace.since or row in lasting])


def _keep_arrivals(trace: Trace) -> None:
    """Keep only the lists of gangs that are left. A list that several gangs share is stored once."""
    lists = Lists(Table(after="B"), "after")
    old, moved = trace.lists, {-1: -1}
    for name in ("hosts", "ends"):
        column = []
        for at in trace.gangs.column(name):
            if at not in moved:
                moved[at] = lists.take(old, at)
            column.append(moved[at])
        trace.gangs.replace(name, column)
    trace.arrivals.replace("after", lists.stored())
    trace.lists.forget()


def _keep_words(trace: Trace) -> None:
    """Keep only the strings that rows still use."""
    words, strings = trace.strings.words, Strings()
    for table in trace.tables.values():
        for name in NAMES:
            if table.has(name):
                old = table.column(name)
                table.replace(name, [strings.add(words[at]) if at >= 0 else -1 for at in old])
    trace.strings.take(strings)


def positions(keys: array[int], over: array[int]) -> dict[int, int]:
    """Return key -> row, for the rows of which more will be known (whose `over` is not set)."""
    return {key: row for row, (key, at) in enumerate(zip(keys, over, strict=True)) if at < 0}

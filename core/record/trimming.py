"""What a trace of bounded size forgets: its oldest runs, whole, with all that is known of them.

Runs are dropped in the order in which they were submitted; one that has not ended stays, and so does all of it. What
belongs to no run (a put, a get, a level of memory) goes when it was over before the last of the dropped runs was. From
then on, `Trace.since`, the trace has everything.

Neighbours: `trace`, which calls `trim` when it has outgrown its limit.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .tables import Lists, Strings, Table

if TYPE_CHECKING:
    from .trace import Trace

SPARE = 4  # a quarter of the limit is made free, so that this is seldom done
NAMES = ("label", "step", "program", "code", "cause", "node")  # columns of interned strings


def trim(trace: Trace, limit: int) -> None:
    """Until it takes three quarters of `limit`, or only what is under way is left."""
    ended = trace.runs.column("ended")
    over = [row for row, at in enumerate(ended) if at >= 0]
    if not over:
        return
    size = trace.nbytes + trace.strings.nbytes
    share = min(1.0, (size - limit + limit // SPARE) / size)
    drop = over[: max(1, round(len(over) * share))]
    trace.since = max(trace.since, max(ended[row] for row in drop) + 1)
    _drop_runs(trace, drop)


def _drop_runs(trace: Trace, drop: Sequence[int]) -> None:
    gone = set(drop)
    kept = [row for row in range(len(trace.runs)) if row not in gone]
    moved = {row: number for number, row in enumerate(kept)}
    trace.runs.keep(kept)
    trace.dropped["runs"] += len(gone)
    for name in ("gangs", "transfers"):
        table = trace.tables[name]
        runs, ended = table.column("run"), table.column("ended")
        rows = [
            row
            for row, run in enumerate(runs)
            if (run in moved if run >= 0 else not 0 <= ended[row] < trace.since)
        ]
        trace.dropped[name] += len(table) - len(rows)
        table.keep(rows)
        table.replace("run", [moved.get(run, -1) for run in table.column("run")])
    _drop_clients(trace)
    _drop_levels(trace)
    _keep_arrivals(trace)
    _keep_words(trace)


def _drop_clients(trace: Trace) -> None:
    """Who is gone, and of whom no run is left."""
    busy = set(trace.runs.column("client")) | set(trace.transfers.column("client"))
    clients, closed = trace.clients.column("client"), trace.clients.column("closed")
    rows = [row for row, at in enumerate(closed) if at < 0 or clients[row] in busy]
    trace.dropped["clients"] += len(closed) - len(rows)
    trace.clients.keep(rows)


def _drop_levels(trace: Trace) -> None:
    """The last one of each place before `since` is its level then."""
    times, places = trace.memory.column("at"), trace.memory.column("place")
    last = {places[row]: row for row, at in enumerate(times) if at < trace.since}
    lasting = set(last.values())
    trace.memory.keep([row for row, at in enumerate(times) if at >= trace.since or row in lasting])


def _keep_arrivals(trace: Trace) -> None:
    """The lists that gangs which are left have; one that several have is stored once."""
    lists = Lists(Table(after="B"), "after")
    old, moved = trace.lists, {-1: -1}
    for name in ("hosts", "ends"):
        found = []
        for at in trace.gangs.column(name):
            if at not in moved:
                moved[at] = lists.take(old, at)
            found.append(moved[at])
        trace.gangs.replace(name, found)
    trace.arrivals.replace("after", lists.stored())
    trace.lists.forget()


def _keep_words(trace: Trace) -> None:
    words, strings = trace.strings.words, Strings()
    for table in trace.tables.values():
        for name in NAMES:
            if table.has(name):
                old = table.column(name)
                table.replace(name, [strings.add(words[at]) if at >= 0 else -1 for at in old])
    trace.strings.take(strings)


def positions(keys: array[int], over: array[int]) -> dict[int, int]:
    """Where the rows are of which more will be known."""
    return {key: row for row, (key, at) in enumerate(zip(keys, over, strict=True)) if at < 0}

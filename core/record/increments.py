"""What is new in a trace since somebody last looked: a few columns, whose size follows what has happened since.

The one who looks keeps a `TraceCursor`: the last rows that it has, and which of them were not complete. `increment`
answers with the rows that came after, and with those that are complete by now. So the trace keeps nothing for its
readers, costs nothing while nobody looks, and any number of them may look, each at its own pace.

Neighbours: `trace`, whose tables these are. Rows go by their first column: the number of a run or reservation, the
seq of a gang or transfer. These only grow. Clients and levels of memory are counted instead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from .tables import Strings, Table
from .trace import OVER, Trace, TracedPlace
from .trimming import NAMES

BY_KEY = ("runs", "gangs", "transfers", "reservations")  # tables whose first column is ascending
BY_COUNT = ("clients", "memory")
LEFT_OUT = ("hosts", "ends")  # columns of gangs that refer to lists by host
MOST = 1 << 16  # rows that may be named as incomplete


class TraceCursor(msgspec.Struct, frozen=True):
    """What a reader has of a trace. The default is nothing.

    `after`: by table, the largest number that it has, or how many rows there have been. `open`: the numbers of its
    rows that were not complete. `most`: how many rows of a table it takes at once; it then gets the latest.
    """

    after: dict[str, int] = {}
    open: dict[str, list[int]] = {}
    places: int = 0
    most: int = 20_000


class Increment(msgspec.Struct, frozen=True):
    """Columns of integers by table; strings are indices in `words`, which are this increment's own.

    `run` in gangs and transfers is the run's own number, and not a row. `after`: what the next cursor has. `skipped`:
    by table, how many rows were left out because they are more than `most`.
    """

    words: list[str]
    places: dict[int, TracedPlace]
    tables: dict[str, dict[str, bytes]]
    after: dict[str, int]
    known_places: int
    skipped: dict[str, int]

    def column(self, table: str, name: str) -> array[int]:
        """One column; all of them are of 64 bits."""
        found = array("q")
        found.frombytes(self.tables[table][name])
        return found


def increment(trace: Trace, cursor: TraceCursor) -> Increment:
    """What a reader lacks."""
    words = Strings()
    tables: dict[str, dict[str, bytes]] = {}
    after, skipped = dict(cursor.after), {}
    runs = trace.runs.column("run")
    for name in (*BY_KEY, *BY_COUNT):
        table = trace.tables[name]
        found = _rows(trace, name, table, cursor)
        after[name], skipped[name] = found.last, found.skipped
        tables[name] = {
            column: _packed(trace, column, table.column(column), found, words, runs)
            for column in table.names
            if column not in LEFT_OUT
        }
    places = dict(islice(trace.places.items(), max(0, cursor.places), None))
    return Increment(words.words, places, tables, after, len(trace.places), skipped)


class NewRows(NamedTuple):
    """Rows that a reader lacks: some old ones that it may know, and all from `begin` on."""

    old: list[int]
    begin: int
    last: int  # what its next cursor has
    skipped: int


def _rows(trace: Trace, name: str, table: Table, cursor: TraceCursor) -> NewRows:
    keys, size = table.keys(), len(table)
    if name in BY_COUNT:
        last = trace.counted(name)
        first = min(size, max(0, size - (last - cursor.after.get(name, 0))))
    else:
        first = bisect_right(keys, cursor.after.get(name, -1))
        last = keys[-1] if size else cursor.after.get(name, -1)
    begin = max(first, size - cursor.most)
    old: list[int] = []
    if name in OVER and name in cursor.after:
        over = table.column(OVER[name])
        known = _positions(name, keys, cursor.open.get(name, ()), first)
        old = [row for row in known if over[row] >= 0]
    elif name in OVER:  # it has nothing yet, and gets all that is under way, however old
        old = [row for row in trace.unfinished(name) if row < begin]
    return NewRows(sorted(old), begin, last, begin - first)


def _positions(name: str, keys: array[int], wanted: Sequence[int], end: int) -> list[int]:
    """The rows of these numbers, among the first `end`; those that were dropped are left out."""
    if name in BY_COUNT:
        numbers = set(wanted)
        return [row for row in range(end) if keys[row] in numbers] if numbers else []
    found = []
    for number in wanted[:MOST]:
        row = bisect_left(keys, number, 0, end)
        if row < end and keys[row] == number:
            found.append(row)
    return found


def _packed(trace: Trace, name: str, column: array[int], rows: NewRows, words: Strings, runs: array[int]) -> bytes:
    values = array("q", [column[row] for row in rows.old])
    values.extend(array("q", column[rows.begin :]))
    if name in NAMES:
        known = trace.strings.words
        values = array("q", [words.add(known[word]) if word >= 0 else -1 for word in values])
    elif name == "run" and column is not runs:
        values = array("q", [runs[row] if row >= 0 else -1 for row in values])
    return values.tobytes()

"""The trace of a run of the system: one row for each gang, transfer, run and client, in columns.

All drivers fill it in the same way. A row is a few integers in typed arrays; names are interned. Hosts differ in when
each enqueued a gang: that takes one to three bytes for each host, and none if the gang before had the same pattern.
Devices of a host do not differ: `intervals` expands rows to devices when they are read. So a gang over 2048 devices on
512 hosts takes half a byte for each device, or less.

    trace.columns()["gangs"]["ended"]       # an array that numpy or pandas can use without a copy

An unknown time is -1. A time that was inferred and not measured has its bit in `flags`, so that a figure can leave it
out. `skew` is how long the gang's first device waited in it for the last. Columns that were returned never change; the
next change is made to a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..model import Spans
from ..protocol import Blame
from .tables import Bytes, Lists, Numbers, Strings, Table, Vector
from .trimming import NAMES, positions, trim

# bits: this time was inferred, not measured
READY, ENTERED, ENQUEUED, STARTED, ENDED, SKEW = (1, 2, 4, 8, 16, 32)
PLACEHOLDER, FAILED = 64, 128  # bits: launched with placeholders; ended with a blame
TIMES = {"ready": READY, "entered": ENTERED, "enqueued": ENQUEUED, "started": STARTED, "ended": ENDED, "skew": SKEW}
LOST = -2  # as the client of a reservation: these devices are not there
LOOK = 64  # runs, levels or reservations that are added between two checks of the size
OVER = {  # table -> the column that says that a row is complete
    "clients": "closed",
    "runs": "ended",
    "gangs": "ended",
    "transfers": "ended",
    "reservations": "until",
}


class TracedPlace(msgspec.Struct, frozen=True):
    """The devices of a place, and how they are on hosts."""

    island: int
    devices: Spans
    devices_per_host: int  # devices of each host
    first: int  # the island's first device


class Trace:
    """The tables of a trace. `gang` and `transfer` add a row; `update` completes it as more is known.

    `limit` is about how many bytes it may take; 0: no limit. If it becomes larger, the oldest runs are dropped, so it
    is complete only from `since` on. `dropped` counts the dropped rows of each table.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit, self.since = limit, 0
        self._looks = 0
        self._reserved = 0  # the number of the last reservation
        self.strings = Strings()
        self.places: dict[int, TracedPlace] = {}
        self.clients = Table(client="q", label="i", weight="i", priority="i", opened="q", closed="q")
        self.runs = Table(
            run="q", client="q", call="q", program="i", submitted="q", deadline="q", admitted="q", ended="q",
            code="i", cause="i", node="i", host="i",
        )  # fmt: skip
        self.gangs = Table(
            seq="q", run="i", step="i", island="h", place="i", ready="q", entered="q", enqueued="q",
            started="q", ended="q", skew="q", flags="H", hosts="q", ends="q",
        )  # fmt: skip
        self.transfers = Table(
            seq="q", run="i", client="q", step="i", source="i", target="i", nbytes="q", entered="q",
            started="q", ended="q", flags="H",
        )  # fmt: skip
        self.memory = Table(at="q", place="i", resident="q", committed="q", capacity="q")
        self.reservations = Table(number="q", place="i", client="q", since="q", until="q")
        self.arrivals = Table(after="B")  # the lists to which the columns `hosts` and `ends` of gangs refer
        self.tables = {
            "clients": self.clients, "runs": self.runs, "gangs": self.gangs, "transfers": self.transfers,
            "memory": self.memory, "reservations": self.reservations, "arrivals": self.arrivals,
        }  # fmt: skip
        self.lists = Lists(self.arrivals, "after")
        # key -> row, until complete
        self._open: dict[str, dict[int, int]] = {name: {} for name in self.tables}
        self.dropped = dict.fromkeys(self.tables, 0)

    # --- record ---------------------------------------------------------------------------------------------

    def client(self, client: int, name: str, weight: int, priority: int, now: int) -> None:
        self._append("clients", client, self.strings.add(name), weight, priority, now, -1)

    def client_gone(self, client: int, now: int) -> None:
        self._set("clients", client, over=True, closed=now)

    def place(self, key: int, island: int, devices: Spans, devices_per_host: int = 1, first: int = 0) -> None:
        """Add a place. Gangs and levels name it by its key."""
        self.places[key] = TracedPlace(island, devices, devices_per_host, first)

    def submitted(self, run: int, client: int, call: int, program: str, now: int, deadline: int = 0) -> None:
        """Add a run. `run` is the controller's number of it, `call` the client's own. `deadline` 0 means none."""
        if self.limit:
            self._trim_if_large()
        word = self.strings.numbers[program]
        row = self.runs.append(run, client, call, word, now, deadline or -1, -1, -1, -1, -1, -1, -1)
        self._open["runs"][run] = row

    def admitted(self, run: int, now: int) -> None:
        row = self._open["runs"].get(run)
        if row is not None:
            self.runs.put_one(row, "admitted", now)

    def ended(self, run: int, now: int, blame: Blame | None = None) -> None:
        if blame is not None:
            add = self.strings.add
            code, cause, node = add(blame.code), add(blame.cause), add(blame.node)
            self._set("runs", run, code=code, cause=cause, node=node, host=blame.host)
        row = self._open["runs"].pop(run, None)
        if row is not None:
            self.runs.put_one(row, "ended", now)

    def gang(
        self, seq: int, run: int, step: str, island: int, place: int, *, ready: int = -1, entered: int = -1,
        enqueued: int = -1, started: int = -1, ended: int = -1, skew: int = -1, flags: int = 0,
    ) -> None:  # fmt: skip
        """Add a gang that is in its island's order, or that has ended and is known completely."""
        row = self.gangs.append(
            seq, self._open["runs"].get(run, -1), self.strings.numbers[step], island, place, ready,
            entered, enqueued, started, ended, skew, flags, -1, -1,
        )  # fmt: skip
        if ended < 0:
            self._open["gangs"][seq] = row

    def transfer(
        self, seq: int, run: int, step: str, source: int, target: int, *, nbytes: int, client: int = -1,
        entered: int = -1, started: int = -1, ended: int = -1, flags: int = 0,
    ) -> None:  # fmt: skip
        """Add a transfer. `source` and `target` are keys of places; -1 means the client `client`."""
        row = self.transfers.append(
            seq, self._open["runs"].get(run, -1), client, self.strings.numbers[step], source, target, nbytes,
            entered, started, ended, flags,
        )  # fmt: skip
        if ended < 0:
            self._open["transfers"][seq] = row

    def left(self, seq: int, now: int) -> None:
        """Bytes of a transfer were sent at this time. It started with the first of them."""
        row = self._open["transfers"].get(seq)
        if row is not None and self.transfers.column("started")[row] < 0:
            self.transfers.put_one(row, "started", now)

    def came(self, seq: int, now: int) -> None:
        """Bytes of a transfer arrived at this time. It ended with the last of them."""
        row = self._open["transfers"].get(seq)
        if row is not None:
            self.transfers.put_one(row, "ended", now)

    def update(self, seq: int, flags: int = 0, **known: int) -> None:
        """Add what is known of a gang or transfer: `enqueued`, `started`, `skew`, and `ended`, which completes its row.

        `flags` are bits to set. An inferred time does not replace a measured one. A row that is complete, or that this
        trace does not have, is not changed.
        """
        open_rows = self._open
        name = "gangs" if seq in open_rows["gangs"] else "transfers"
        row = open_rows[name].get(seq)
        if row is None:
            return
        over = "ended" in known
        if flags:
            table = self.tables[name]
            for time in [time for time in known if flags & TIMES[time] and table.column(time)[row] >= 0]:
                del known[time]
                flags &= ~TIMES[time]
            known["flags"] = table.column("flags")[row] | flags
        self.tables[name].put(row, **known)
        if over:
            del open_rows[name][seq]

    def started(self, seq: int, enqueued: Numbers, started: int, flags: int = 0) -> None:
        """Add when each host of an open collective gang, in order, enqueued it, and when it then started."""
        row = self._open["gangs"].get(seq)
        if row is not None:
            first, at = self.lists.add(enqueued)
            table = self.gangs
            table.put(row, enqueued=first, hosts=at, started=started, skew=started - first)
            if flags:
                table.put_one(row, "flags", flags | table.column("flags")[row])

    def hosts(self, seq: int, enqueued: Sequence[int] | Vector) -> None:
        """Add when each host of an open gang, in order, enqueued it. The gang's `enqueued` is the first of these."""
        if seq in self._open["gangs"] and len(enqueued):
            first, at = self.lists.add(enqueued)
            self._set("gangs", seq, enqueued=first, hosts=at)

    def ends(self, seq: int, ended: Sequence[int] | Vector) -> None:
        """Add when each host of an open gang, in order, ended it, if the gang is not a collective.

        Each host then ran it from its own time of enqueueing (see `hosts`), independently of the others. The gang's
        `ended` is the last of these times, which completes its row.
        """
        if seq in self._open["gangs"] and len(ended):
            first, at = self.lists.add(ended)
            last = first + max(self.lists.get(at))
            self._set("gangs", seq, over=True, ended=last, ends=at)

    def reserved(self, place: int, client: int, now: int) -> int:
        """Add that a policy keeps the devices of a place free from now on, for a client or, if -1, for nobody in
        particular; or that they are `LOST`. Return its number."""
        if self.limit:
            self._trim_if_large()
        self._reserved += 1
        self._append("reservations", self._reserved, place, client, now, -1)
        return self._reserved

    def reserved_until(self, number: int, now: int) -> None:
        """They are kept no more."""
        self._set("reservations", number, over=True, until=now)

    def levels(self, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Add bytes on each device of places, each from a time on: (at, place, resident, committed, capacity)."""
        if self.limit:
            self._trim_if_large(len(rows))
        self.memory.append_all(rows)

    # --- read -----------------------------------------------------------------------------------------------

    def columns(self) -> dict[str, dict[str, array[int]]]:
        return {name: table.columns() for name, table in self.tables.items()}

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Yield rows with strings instead of their numbers. `run` in a gang or transfer is the run's own number."""
        runs = self.runs.column("run")
        for numbers in self.tables[table].rows():
            row: dict[str, Any] = dict(numbers)
            for name in NAMES:
                if name in row:
                    row[name] = self.strings.words[row[name]] if row[name] >= 0 else ""
            if table in ("gangs", "transfers"):
                row["run"] = runs[row["run"]] if row["run"] >= 0 else -1
            yield row

    def __len__(self) -> int:
        return len(self.gangs)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables.values())

    def counted(self, table: str) -> int:
        """Return the number of rows of a table, with those that were dropped."""
        return len(self.tables[table]) + self.dropped[table]

    def unfinished(self, table: str) -> list[int]:
        """Return the rows of a table of which more will be known, in order."""
        return sorted(self._open[table].values())

    @classmethod
    def restored(
        cls,
        words: Sequence[str],
        places: Mapping[int, TracedPlace],
        columns: Mapping[str, Mapping[str, Bytes]],
        since: int = 0,
    ) -> Trace:
        """Make a trace from `strings.words`, `places` and `columns()` (as bytes) of another. It may grow further."""
        trace = cls()
        trace.since = since
        if set(columns) != set(trace.tables):
            raise ValueError(f"the tables are {sorted(columns)}, but should be {sorted(trace.tables)}")
        for word in words:
            trace.strings.add(word)
        trace.places.update(places)
        for name, table in trace.tables.items():
            table.fill(columns[name])
        trace._reserved = max(trace.reservations.keys(), default=0)
        trace._find_open()
        return trace

    # --- merge ----------------------------------------------------------------------------------------------

    def merge(self, other: Trace) -> None:
        """Add what another trace of the same events (for example a host's) knows and this one does not.

        A measured time replaces an inferred one. Runs, clients and seqs must mean the same in both.
        """
        self.since = max(self.since, other.since)
        words = [self.strings.add(word) for word in other.strings.words]
        shift = len(self.arrivals)
        self.places.update(other.places)
        self.arrivals.extend("after", other.arrivals.column("after"))
        self._merge("clients", other, words)
        run_rows = self._merge("runs", other, words)
        for name in ("gangs", "transfers"):
            self._merge(name, other, words, run_rows, shift)
        self._merge("reservations", other, words)
        for level in other.memory.rows():
            self.memory.append(*level.values())

    def _merge(
        self, name: str, other: Trace, words: list[int], run_rows: Sequence[int] = (), shift: int = 0
    ) -> list[int]:
        """Merge one table of another trace. Return the rows here of its rows."""
        mine = self.tables[name]
        rows = {key: row for row, key in enumerate(mine.keys())}
        moved: list[int] = []
        for row in other.tables[name].rows():
            key = next(iter(row.values()))
            for column in NAMES:
                if row.get(column, -1) >= 0:
                    row[column] = words[row[column]]
            if "run" in row and run_rows and row["run"] >= 0:
                row["run"] = run_rows[row["run"]]
            for column in ("hosts", "ends"):
                if row.get(column, -1) >= 0:
                    row[column] += shift
            if key in rows:
                mine.put(rows[key], **_better(mine.row(rows[key]), row))
                if row[OVER[name]] >= 0:
                    self._open[name].pop(key, None)
            else:
                rows[key] = mine.append(*row.values())
            moved.append(rows[key])
        return moved

    # --- inside ---------------------------------------------------------------------------------------------

    def _trim_if_large(self, more: int = 1) -> None:
        """Drop the oldest runs if the trace is too large. This moves rows, so call it before rows are looked up."""
        self._looks += more
        if self._looks >= LOOK:
            self._looks = 0
            if self.nbytes + self.strings.nbytes > self.limit:
                trim(self, self.limit)
                self._find_open()

    def _find_open(self) -> None:
        for name, over in OVER.items():
            table = self.tables[name]
            self._open[name] = positions(table.keys(), table.column(over))

    def _append(self, name: str, key: int, *values: int) -> None:
        self._open[name][key] = self.tables[name].append(key, *values)

    def _set(self, name: str, key: int, over: bool = False, **known: int) -> None:
        row = self._open[name].get(key)
        if row is None:
            return
        self.tables[name].put(row, **known)
        if over:
            del self._open[name][key]


def _better(mine: dict[str, int], theirs: dict[str, int]) -> dict[str, int]:
    """Return the values that `theirs` has and `mine` has not, or has only inferred."""
    found = {name: value for name, value in theirs.items() if mine[name] < 0 <= value}
    if "flags" in mine:
        flags = mine["flags"] | theirs["flags"] & (PLACEHOLDER | FAILED)
        for name, bit in TIMES.items():
            if theirs.get(name, -1) < 0:
                continue
            measured_there = not theirs["flags"] & bit
            if name in found:
                flags |= theirs["flags"] & bit
            elif flags & bit and measured_there:
                found[name] = theirs[name]
                flags &= ~bit
        found["flags"] = flags
    return found

"""A reader that looks now and then has, after each look, what the trace has, whatever happened between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.protocol.messages import Blame
from core.record.increments import BY_KEY, OVER, Increment, TraceCursor, increment
from core.record.trace import Trace
from core.record.trimming import NAMES

KINDS = 8  # of what may happen
SMALL = 6_000  # bytes: such a trace forgets its oldest runs all the time


class Reader:
    """Keeps rows by their keys, as the page in a browser does."""

    def __init__(self, most: int = 20_000) -> None:
        self.rows: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in OVER}
        self.levels: list[tuple[int, int, int]] = []
        self.cursor = TraceCursor(most=most)
        self.places: dict[int, Any] = {}
        self.sent = 0  # rows in the last look

    def look(self, trace: Trace) -> Increment:
        found = increment(trace, self.cursor)
        self.sent = 0
        for name, columns in found.tables.items():
            values = {column: found.column(name, column).tolist() for column in columns}
            for at in range(len(next(iter(values.values())))):
                row: dict[str, Any] = {column: numbers[at] for column, numbers in values.items()}
                for column in NAMES:
                    if column in row:
                        row[column] = found.words[row[column]] if row[column] >= 0 else ""
                self.sent += 1
                if name == "memory":
                    self.levels.append((row["at"], row["place"], row["resident"]))
                else:
                    self.rows[name][next(iter(row.values()))] = row
        self.places.update(found.places)
        open_rows = {
            name: [key for key, row in rows.items() if row[OVER[name]] < 0] for name, rows in self.rows.items()
        }
        self.cursor = TraceCursor(found.after, open_rows, found.known_places, self.cursor.most)
        return found


def rows_of(trace: Trace, name: str) -> dict[int, dict[str, Any]]:
    left_out = ("hosts", "ends")
    return {
        next(iter(row.values())): {key: value for key, value in row.items() if key not in left_out}
        for row in trace.rows(name)
    }


class Story:
    """A trace in which things happen, each at a time of its own."""

    def __init__(self, limit: int = 0) -> None:
        self.trace = Trace(limit)
        self.now = 0
        self.runs: list[int] = []  # under way
        self.gangs: list[int] = []
        self.clients: list[int] = []
        self.kept: list[int] = []  # reservations under way
        self.count = 0

    def happen(self, what: int) -> None:
        """One thing that may happen now."""
        trace, self.now = self.trace, self.now + 1
        kind, which = what % KINDS, what // KINDS
        if kind == 0:
            self.count += 1
            trace.client(self.count, f"client {self.count}", 1, 0, self.now)
            self.clients.append(self.count)
        elif kind == 1 and self.clients:
            self.count += 1
            client = self.clients[which % len(self.clients)]
            trace.submitted(self.count, client, 1, f"program {which % 5}", self.now)
            self.runs.append(self.count)
        elif kind == 2 and self.runs:
            self.count += 1
            place = which % 4
            trace.place(place, 0, ((place, place + 1),))
            run = self.runs[which % len(self.runs)]
            trace.gang(self.count, run, f"step {which % 3}", 0, place, ready=self.now, entered=self.now)
            self.gangs.append(self.count)
        elif kind == 3 and self.gangs:
            trace.update(self.gangs.pop(which % len(self.gangs)), ended=self.now)
        elif kind == 4 and self.runs:
            blame = Blame("user", f"cause {which}", node="node", host=3) if which % 2 else None
            trace.ended(self.runs.pop(which % len(self.runs)), self.now, blame)
        elif kind == 5:
            trace.levels([(self.now, which % 3, self.now, 0, 99)])
        elif kind == 7 and not which % 2:
            trace.place(which % 4, 0, ((which % 4, which % 4 + 1),))
            self.kept.append(trace.reserved(which % 4, 1, self.now))
        elif kind == 7 and self.kept:
            trace.reserved_until(self.kept.pop(which % len(self.kept)), self.now)
        elif kind == 6 and self.clients:
            trace.client_gone(self.clients.pop(which % len(self.clients)), self.now)


LOOK = -1
Happenings = st.lists(st.one_of(st.just(LOOK), st.integers(0, 700)), max_size=200)


@given(Happenings)
def test_after_each_look_the_reader_has_what_the_trace_has(happenings: list[int]) -> None:
    story, reader = Story(), Reader()
    for each in [*happenings, LOOK]:
        if each != LOOK:
            story.happen(each)
            continue
        reader.look(story.trace)
        for name, rows in reader.rows.items():
            assert rows == rows_of(story.trace, name)
        assert reader.levels == [(row["at"], row["place"], row["resident"]) for row in story.trace.rows("memory")]
        assert reader.places == story.trace.places


@given(Happenings)
def test_it_has_them_too_if_the_trace_forgets_its_oldest_runs_meanwhile(happenings: list[int]) -> None:
    story, reader = Story(SMALL), Reader()
    for each in [*happenings, *happenings, LOOK]:
        if each != LOOK:
            story.happen(each)
            continue
        reader.look(story.trace)
        for name in BY_KEY:
            kept = rows_of(story.trace, name)
            assert {key: reader.rows[name].get(key) for key in kept} == kept


def test_a_reader_lacks_no_level_of_memory_when_the_trace_forgets_older_ones() -> None:
    story, reader = Story(SMALL), Reader()
    story.happen(0)
    for _ in range(300):
        for what in (1, 4, 5):
            story.happen(what)
        reader.look(story.trace)
        kept = {(row["at"], row["place"], row["resident"]) for row in story.trace.rows("memory")}
        assert kept <= set(reader.levels)
    assert len(story.trace.memory) < 300


def busy(runs: int) -> Story:
    story = Story()
    story.happen(0)
    for _ in range(runs):
        for what in (1, 2, 3, 4):
            story.happen(what)
    return story


def test_a_look_costs_what_has_happened_since_the_one_before() -> None:
    story, reader = busy(500), Reader()
    reader.look(story.trace)
    assert reader.sent > 1000
    reader.look(story.trace)
    assert reader.sent == 0
    story.happen(1)
    reader.look(story.trace)
    assert reader.sent == 1


def test_a_reader_gets_no_more_rows_of_a_table_than_it_takes_and_hears_how_many_it_lacks() -> None:
    story, reader = busy(500), Reader(most=100)
    first = story.count + 1
    story.happen(1)  # under way from here on, older than all that follows
    for _ in range(200):
        for what in (1, 2, 3, KINDS + 4):  # the last run ends, not the first
            story.happen(what)
    found = reader.look(story.trace)
    assert len(reader.rows["gangs"]) == 100
    assert found.skipped["gangs"] == len(story.trace.gangs) - 100
    assert first in reader.rows["runs"], "what is under way comes however old it is"


def test_looking_changes_nothing_and_copies_no_column_for_the_writer() -> None:
    story = busy(10)
    before = {name: table.columns() for name, table in story.trace.tables.items()}
    story.happen(1)
    columns = story.trace.runs.column("run")
    increment(story.trace, TraceCursor())
    story.happen(4)
    assert story.trace.runs.column("run") is columns
    assert len(before["runs"]["run"]) == 10

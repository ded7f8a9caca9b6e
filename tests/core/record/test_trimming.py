"""A trace of limited size drops its oldest runs with all their rows; runs that have not ended stay unchanged."""

from __future__ import annotations

from functools import cache
from typing import Any

from core.protocol.messages import Blame
from core.record.trace import Trace
from tests.intervals import intervals

GANGS = 4  # in each run
LIMIT = 40_000


def run(trace: Trace, number: int, end: bool = True, client: int = 1) -> None:
    """Add a run with a few gangs and a transfer, on two hosts, that begins at ten times its number."""
    at = 10 * number
    trace.submitted(number, client, number, f"program {number}", at)
    trace.admitted(number, at + 1)
    for gang in range(GANGS):
        seq = 100 * number + gang
        trace.gang(seq, number, f"step {gang}", 0, 0, ready=at, entered=at + 1)
        trace.hosts(seq, [at + 2, at + 3 + number % 7])
        if end:
            trace.update(seq, started=at + 2, ended=at + 5)
    trace.transfer(100 * number + 50, number, "send", 0, 0, nbytes=8, entered=at + 1, started=at + 2, ended=at + 4)
    trace.levels([(at, number % 3, number, 0, 99)])
    if end:
        trace.ended(number, at + 8, Blame("user", f"cause {number}") if number % 5 == 0 else None)


def traced(runs: int, limit: int = 0, open_run: int = -1) -> Trace:
    trace = Trace(limit)
    trace.place(0, 0, ((0, 4),), 2)
    trace.client(1, "ann", 1, 0, 0)
    trace.client(2, "bob", 1, 0, 0)
    trace.client_gone(2, 5)
    for number in range(runs):
        run(trace, number, end=number != open_run)
    return trace


@cache
def whole() -> Trace:
    return traced(2000)


@cache
def trimmed() -> Trace:
    """Of the same runs. Nobody changes either."""
    return traced(2000, LIMIT)


def rows_since(trace: Trace, since: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return the trace's rows of runs that were submitted at this time or later, with strings."""
    runs = [row for row in trace.rows("runs") if row["submitted"] >= since]
    kept = {row["run"] for row in runs}
    found = {name: [row for row in trace.rows(name) if row["run"] in kept] for name in ("gangs", "transfers")}
    for row in found["gangs"]:
        row["hosts"] = trace.lists.get(row["hosts"])
    return {"runs": runs, **found}


def test_a_trace_without_a_limit_forgets_nothing() -> None:
    trace = traced(500)
    assert (len(trace.runs), trace.since, set(trace.dropped.values())) == (500, 0, {0})


def test_a_bounded_trace_stays_bounded_and_agrees_with_an_unbounded_one() -> None:
    trace = trimmed()
    assert trace.nbytes + trace.strings.nbytes < 2 * LIMIT
    assert 20 < len(trace.runs) < 500
    assert rows_since(trace) == rows_since(whole(), since=trace.runs.column("submitted")[0])
    for name in ("runs", "gangs", "transfers"):
        assert trace.counted(name) == len(whole().tables[name])


def test_a_trace_says_from_when_on_it_is_complete() -> None:
    trace = trimmed()
    assert trace.since > 0
    after = [row["seq"] for row in whole().rows("gangs") if row["ended"] >= trace.since]
    assert [row["seq"] for row in trace.rows("gangs") if row["ended"] >= trace.since] == after


def test_intervals_are_those_of_the_gangs_that_are_left() -> None:
    kept = set(trimmed().gangs.column("seq"))
    assert list(intervals(trimmed())) == [each for each in intervals(whole()) if each[1] in kept]


def test_a_run_under_way_stays_and_can_grow() -> None:
    trace = traced(2000, LIMIT, open_run=3)
    assert trace.runs.column("run")[0] == 3
    assert trace.since > 1000
    trace.update(300, started=33, ended=44)
    trace.ended(3, 90_000)
    row = next(row for row in trace.rows("gangs") if row["seq"] == 300)
    assert (row["run"], row["step"], row["started"], row["ended"]) == (3, "step 0", 33, 44)
    assert next(trace.rows("runs"))["ended"] == 90_000


def test_unused_words_and_clients_are_dropped_and_the_last_memory_level_of_a_place_stays() -> None:
    trace = trimmed()
    assert len(trace.strings.words) < 1000
    assert [row["label"] for row in trace.rows("clients")] == ["ann"]
    before = [row["place"] for row in trace.rows("memory") if row["at"] < trace.since]
    assert sorted(before) == [0, 1, 2]


def test_a_view_that_was_handed_out_keeps_its_contents() -> None:
    trace = traced(64, LIMIT)
    shown = trace.columns()
    first = list(shown["runs"]["run"])
    for number in range(64, 2000):
        run(trace, number)
    assert list(shown["runs"]["run"]) == first
    assert trace.since


def test_rows_of_no_run_are_dropped_by_their_time() -> None:
    trace = Trace(LIMIT)
    trace.client(1, "ann", 1, 0, 0)
    for number in range(2000):
        trace.transfer(
            100 * number + 60, -1, "put", -1, 0, nbytes=8, client=1, entered=10 * number, ended=10 * number + 1
        )
        run(trace, number)
    puts = [row for row in trace.rows("transfers") if row["step"] == "put"]
    assert 0 < len(puts) < 500
    assert min(row["ended"] for row in puts) >= trace.since


def reserving(runs: int, limit: int = 0) -> tuple[Trace, int]:
    """As `traced`, and at each run a policy begins to keep devices for a client that comes and goes; it keeps them for
    up to a hundred runs. Return the number of the reservation that is under way, too."""
    trace = Trace(limit)
    trace.place(0, 0, ((0, 4),), 2)
    trace.client(1, "ann", 1, 0, 0)
    first = trace.reserved(0, 1, 0)
    under_way: dict[int, int] = {}  # reservation -> the run with which it ends
    for number in range(runs):
        now, client = 10 * number, number + 2
        trace.client(client, f"client {client}", 1, 0, now)
        under_way[trace.reserved(0, client, now)] = number + number * 37 % 100
        trace.client_gone(client, now + 1)
        run(trace, number)
        for each in [each for each, end in under_way.items() if end <= number]:
            trace.reserved_until(each, now + 9)
            del under_way[each]
    return trace, first


def test_reservations_are_dropped_by_their_ends_and_their_clients_stay_as_long() -> None:
    (trace, first), (unbounded, _) = reserving(2000, LIMIT), reserving(2000)
    kept = [row for row in unbounded.rows("reservations") if not 0 <= row["until"] < trace.since]
    assert list(trace.rows("reservations")) == kept
    assert 2 < len(kept) < 500
    assert trace.counted("reservations") == len(unbounded.reservations)
    named = {row["client"] for row in trace.rows("clients")}
    assert named >= {row["client"] for row in kept}, "also those that are gone"
    assert len(named) < 500
    assert trace.reservations.keys()[0] == first, "it is under way"
    trace.reserved_until(first, 90_000)
    assert next(trace.rows("reservations"))["until"] == 90_000
    assert trace.reserved(0, 1, 90_001) == len(unbounded.reservations) + 1, "numbers are not given again"


def test_runs_that_are_over_make_room_for_reservations() -> None:
    """A policy may answer otherwise whenever it is asked, while no run comes."""
    trace = traced(60, LIMIT)
    trace.submitted(60, 1, 60, "program 60", 600)
    assert (trace.since, len(trace.runs)) == (0, 61)
    for now in range(600, 1500):
        trace.reserved_until(trace.reserved(0, now % 2, now), now + 1)
    assert trace.since > 0
    assert trace.runs.column("run")[-1] == 60, "what has not ended stays"
    assert len(trace.runs) < 30
    assert trace.counted("reservations") == 900


def test_a_trace_is_sent_with_the_time_from_which_it_is_complete() -> None:
    trace = trimmed()
    columns = {name: {c: data.tobytes() for c, data in table.items()} for name, table in trace.columns().items()}
    again = Trace.restored(trace.strings.words, trace.places, columns, trace.since)
    assert rows_since(again) == rows_since(trace)
    assert again.since == trace.since

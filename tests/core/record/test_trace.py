"""A trace is small and columnar, is read without copies, is expanded only when it is read, and can be merged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.protocol.messages import Blame
from core.record.tables import Lists, Strings, Table
from core.record.trace import ENDED, FAILED, STARTED, Trace
from tests.intervals import intervals


def traced() -> Trace:
    """One client, one run of two gangs on two hosts of two devices, and a transfer between them."""
    trace = Trace()
    trace.place(0, island=0, devices=((0, 4),), devices_per_host=2)
    trace.client(1, "ann", weight=2, priority=0, now=5)
    trace.submitted(7, client=1, call=1, program="train", now=10)
    trace.admitted(7, 11)
    trace.gang(100, 7, "forward", 0, 0, ready=11, entered=12)
    trace.transfer(101, 7, "send", source=0, target=0, nbytes=64, entered=12)
    trace.gang(102, 7, "back", 0, 0, ready=12, entered=12)
    trace.hosts(100, [20, 26])
    trace.update(100, started=30, skew=6)
    trace.update(100, ended=50)
    trace.update(101, started=50, ended=60)
    trace.update(102, flags=STARTED, enqueued=22, started=60, ended=90)
    trace.ended(7, 95)
    trace.client_gone(1, 99)
    return trace


def test_a_row_has_the_known_values_and_minus_one_for_unknown_ones() -> None:
    forward, back = traced().rows("gangs")
    assert forward["run"] == 7
    assert (forward["step"], forward["island"], forward["place"]) == ("forward", 0, 0)
    assert [forward[name] for name in ("ready", "entered", "enqueued", "started", "ended", "skew")] == [
        11, 12, 20, 30, 50, 6,
    ]  # fmt: skip
    assert back["skew"] == -1


def test_inferred_times_are_flagged() -> None:
    forward, back = traced().rows("gangs")
    assert not forward["flags"]
    assert back["flags"] == STARTED


def test_runs_and_clients_have_names() -> None:
    (run,) = traced().rows("runs")
    (client,) = traced().rows("clients")
    assert (run["run"], run["client"], run["call"], run["program"]) == (7, 1, 1, "train")
    assert [run[name] for name in ("submitted", "admitted", "ended", "code")] == [10, 11, 95, ""]
    assert (client["label"], client["opened"], client["closed"]) == ("ann", 5, 99)


def test_a_failed_run_keeps_its_blame() -> None:
    trace = Trace()
    trace.submitted(7, 1, 1, "train", 10)
    trace.ended(7, 20, Blame("host-lost", "no sign of life", "train", "back", 3))
    (run,) = trace.rows("runs")
    assert [run[n] for n in ("code", "cause", "node", "host")] == ["host-lost", "no sign of life", "back", 3]


def test_events_about_past_or_unknown_things_take_no_memory() -> None:
    trace = traced()
    trace.update(100, ended=1000)
    trace.update(999, ended=1000)
    trace.hosts(100, [1, 2])
    trace.ended(7, 1000)
    assert [row["ended"] for row in trace.rows("gangs")] == [50, 90]


def test_rows_expand_to_devices_from_their_hosts_arrivals() -> None:
    assert list(intervals(traced())) == [
        (0, 100, 20, 50), (1, 100, 20, 50), (2, 100, 26, 50), (3, 100, 26, 50),
        (0, 102, 60, 90), (1, 102, 60, 90), (2, 102, 60, 90), (3, 102, 60, 90),
    ]  # fmt: skip


def test_a_place_that_starts_inside_an_island_finds_its_hosts() -> None:
    trace = Trace()
    # The place has the last device of one host and the first of the next.
    trace.place(3, island=1, devices=((12, 14),), devices_per_host=2, first=11)
    trace.gang(1, -1, "a", 1, 3, entered=0)
    trace.hosts(1, [5, 8])
    trace.update(1, started=9, ended=10)
    assert list(intervals(trace)) == [(12, 1, 5, 10), (13, 1, 8, 10)]


def test_a_gang_that_has_not_ended_has_no_interval() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 4),))
    trace.gang(1, -1, "a", 0, 0, started=5)
    assert list(intervals(trace)) == []


def test_a_gang_of_2048_devices_takes_about_a_byte_a_device() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 2048),), devices_per_host=4)
    for seq in range(1000):
        trace.gang(seq, -1, "step", 0, 0, ready=seq, entered=seq)
        trace.hosts(seq, range(seq, seq + 512))
        trace.update(seq, started=seq + 512, ended=seq + 1000)
    assert trace.nbytes / (1000 * 2048) < 1.1


def test_a_gang_without_hosts_takes_under_a_hundred_bytes() -> None:
    trace = Trace()
    for seq in range(1000):
        trace.gang(seq, -1, "step", 0, 0, entered=seq, ended=seq + 1)
    assert trace.nbytes < 100 * 1000


# --- columns ----------------------------------------------------------------------------------------------


def test_numpy_wraps_a_column_without_copying_it() -> None:
    column = traced().columns()["gangs"]["ended"]
    view = np.frombuffer(column, dtype=np.int64)
    assert view.tolist() == [50, 90]
    column[0] = 51
    assert view[0] == 51


def test_recording_goes_on_while_a_view_is_held_and_the_view_keeps_what_it_showed() -> None:
    trace = traced()
    trace.gang(103, 7, "late", 0, 0, entered=100)
    view = np.frombuffer(trace.columns()["gangs"]["ended"], dtype=np.int64)
    trace.gang(104, 7, "later", 0, 0, entered=101)
    trace.update(103, ended=200)
    assert view.tolist() == [50, 90, -1]
    assert [row["ended"] for row in trace.rows("gangs")] == [50, 90, 200, -1]


def test_a_row_must_be_whole() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Table(a="q", b="q").append(1)


def test_a_word_has_one_number() -> None:
    strings = Strings()
    assert [strings.add(word) for word in ("a", "b", "a")] == [0, 1, 0]
    assert strings.words == ["a", "b"]


# --- merge ------------------------------------------------------------------------------------------------


def test_merging_with_an_empty_one_changes_nothing() -> None:
    trace, empty = traced(), Trace()
    trace.merge(Trace())
    empty.merge(traced())
    for name in trace.tables:
        assert list(trace.rows(name)) == list(traced().rows(name)) == list(empty.rows(name)), name
    assert list(intervals(empty)) == list(intervals(traced()))


def test_merging_the_same_twice_is_merging_it_once() -> None:
    trace = traced()
    trace.merge(traced())
    for name in ("clients", "runs", "gangs", "transfers"):
        assert list(trace.rows(name)) == list(traced().rows(name)), name
    assert list(intervals(trace)) == list(intervals(traced()))


def test_observed_values_replace_inferred_ones_and_fill_unknown_ones() -> None:
    here, there = Trace(), Trace()
    here.gang(1, -1, "step", 0, 0, entered=10, started=11, ended=99, flags=STARTED | ENDED)
    there.gang(1, -1, "step", 0, 0, entered=77, started=20, ended=60, skew=3, flags=ENDED | FAILED)
    here.merge(there)
    (gang,) = here.rows("gangs")
    assert [gang[name] for name in ("entered", "started", "ended", "skew")] == [10, 20, 99, 3]
    assert gang["flags"] == ENDED | FAILED


def test_a_merge_renumbers_names_and_runs_and_hosts() -> None:
    here, there = traced(), Trace()
    there.submitted(8, 2, 1, "serve", 10)
    there.gang(200, 8, "answer", 0, 0, entered=5)
    there.hosts(200, [6, 9])
    there.update(200, started=9, ended=10)
    there.levels([(3, 0, 10, 20, 100)])
    here.merge(there)
    gang = list(here.rows("gangs"))[-1]
    assert (gang["run"], gang["step"]) == (8, "answer")
    assert list(intervals(here))[-4:] == [(0, 200, 6, 10), (1, 200, 6, 10), (2, 200, 9, 10), (3, 200, 9, 10)]
    assert list(here.rows("memory")) == [{"at": 3, "place": 0, "resident": 10, "committed": 20, "capacity": 100}]


def test_a_gang_that_a_merge_ended_is_over() -> None:
    here, there = Trace(), Trace()
    here.gang(1, -1, "step", 0, 0, entered=10)
    there.gang(1, -1, "step", 0, 0, entered=10, ended=60)
    here.merge(there)
    here.update(1, ended=1000)
    assert [row["ended"] for row in here.rows("gangs")] == [60]


def test_hosts_of_a_gang_without_a_collective_end_it_by_themselves() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 4),), devices_per_host=2)
    trace.gang(1, -1, "a", 0, 0, entered=0)
    trace.hosts(1, [10, 14])
    trace.update(1, started=10)
    trace.ends(1, [31, 28])
    trace.update(1, ended=1000)  # it is complete now
    (gang,) = trace.rows("gangs")
    assert gang["ended"] == 31
    assert list(intervals(trace)) == [(0, 1, 10, 31), (1, 1, 10, 31), (2, 1, 14, 28), (3, 1, 14, 28)]
    other = traced()
    other.merge(trace)
    assert list(intervals(other))[-4:] == list(intervals(trace))


# --- lists of arrivals ------------------------------------------------------------------------------------


def lists() -> tuple[Lists, Table]:
    table = Table(after="B")
    return Lists(table, "after"), table


@pytest.mark.parametrize("largest", [0, 255, 256, 65_535, 65_536, 2**24 - 1, 2**24, 2**32 - 1, 2**32, 2**50])
def test_a_list_is_restored_counted_from_its_smallest_value(largest: int) -> None:
    kept, _ = lists()
    numbers = [10, 10 + largest, 10, 10 + largest // 2]
    smallest, at = kept.add(numbers)
    assert (smallest, kept.get(at)) == (10, [number - 10 for number in numbers])


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=40))
def test_numpy_and_python_write_the_same_bytes(numbers: list[int]) -> None:
    kept, table = lists()
    other, others = lists()
    smallest, at = kept.add(numbers)
    assert other.add(np.array(numbers)) == (smallest, at)
    assert table.columns() == others.columns()
    assert [smallest + each for each in kept.get(at)] == numbers


class Pattern:
    def __init__(self, numbers: list[int]) -> None:
        self.vector = np.array(numbers)


class Shifted:
    def __init__(self, pattern: Pattern, at: int) -> None:
        self.pattern, self.at = pattern, at


NUMBERS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=10)


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**40))))
def test_a_pattern_that_is_shifted_is_written_as_the_numbers_that_it_stands_for(
    patterns: list[list[int]], added: list[tuple[int, int]]
) -> None:
    kept, table = lists()
    other, others = lists()
    known = [Pattern(numbers) for numbers in patterns]
    for which, at in added:
        pattern = known[which % len(known)]
        assert kept.add(Shifted(pattern, at)) == other.add((pattern.vector + at).tolist())
    assert table.columns() == others.columns()


def test_a_pattern_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, _ = lists()
    pattern = Pattern([0, 300, 5])
    assert kept.add(Shifted(pattern, 10)) == (10, 0)
    monkeypatch.setattr(kept, "_pack", None)
    assert kept.add(Shifted(pattern, 20)) == (20, 0)


def test_only_so_many_patterns_are_remembered() -> None:
    kept, _ = lists()
    for number in range(3 * Lists.PATTERNS):
        kept.add(Shifted(Pattern([0, number]), number))
    assert len(kept._patterns) <= Lists.PATTERNS


def test_a_list_that_was_seen_recently_takes_no_memory() -> None:
    kept, table = lists()
    _, first = kept.add([100, 103, 101])
    size = len(table)
    _, second = kept.add([7100, 7103, 7101])
    assert (second, len(table)) == (first, size)
    for number in range(2 * Lists.LATELY):
        kept.add([0, number])
    _, third = kept.add([100, 103, 101])
    assert third != first  # it was forgotten meanwhile, so it is stored again
    assert kept.get(third) == kept.get(first)


def test_steadily_rising_arrivals_are_stored_as_differences() -> None:
    """A flat fan-out to 512 hosts takes 35 ms: times take four bytes for each host, their differences only two."""
    kept, table = lists()
    kept.add([68_000 * host + host * 37 % 8000 for host in range(512)])
    assert len(table) < 2.1 * 512


def test_numbers_of_any_width_are_stored() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 2),), 1)
    for seq, kind in enumerate((np.int16, np.int32, np.uint32, np.uint64)):
        trace.gang(seq, -1, "s", 0, 0)
        trace.hosts(seq, np.array([30_000, 5], dtype=kind))
        trace.update(seq, ended=40_000)
    assert list(intervals(trace))[1::2] == [(1, seq, 5, 40_000) for seq in range(4)]
    assert list(intervals(trace))[::2] == [(0, seq, 30_000, 40_000) for seq in range(4)]


def test_a_host_that_is_a_minute_late_keeps_its_time() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 2),), 1)
    trace.gang(1, -1, "s", 0, 0)
    trace.hosts(1, [10, 60_000_000_010])
    trace.update(1, ended=60_000_000_020)
    assert [since for _, _, since, _ in intervals(trace)] == [10, 60_000_000_010]


@pytest.mark.parametrize("jitter", [8_000, 60_000])
def test_arrivals_with_jitter_take_half_a_byte_a_device(jitter: int) -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 2048),), devices_per_host=4)
    dice = np.random.default_rng(1)
    for seq in range(200):
        trace.gang(seq, -1, "step", 0, 0, entered=seq)
        trace.hosts(seq, seq + dice.integers(0, jitter, 512))
        trace.update(seq, started=seq + jitter, ended=seq + 2 * jitter)
    assert trace.nbytes / (200 * 2048) < 0.6


# --- restored ---------------------------------------------------------------------------------------------


def restored(trace: Trace) -> Trace:
    columns = {name: {column: bytes(data) for column, data in table.items()} for name, table in trace.columns().items()}
    return Trace.restored(trace.strings.words, trace.places, columns)


def test_a_restored_trace_is_the_same_and_goes_on() -> None:
    trace = traced()
    trace.gang(103, 7, "late", 0, 0, entered=100)
    again = restored(trace)
    for each in (trace, again):
        each.update(103, started=110, ended=120)
        each.update(100, ended=1000)  # it is complete now
        each.submitted(8, 1, 2, "train", 130)
        each.gang(104, 8, "forward", 0, 0, entered=131)
        each.hosts(104, [140, 141])
        each.update(104, started=142, ended=150)
    for name in trace.tables:
        assert list(again.rows(name)) == list(trace.rows(name)), name
    assert list(intervals(again)) == list(intervals(trace))


def test_columns_of_something_else_are_refused() -> None:
    columns = {name: dict(table) for name, table in traced().columns().items()}
    del columns["gangs"]["skew"]
    with pytest.raises(ValueError, match="skew"):
        Trace.restored([], {}, columns)
    with pytest.raises(ValueError, match="tables"):
        Trace.restored([], {}, {})
    short = {name: dict(table) for name, table in traced().columns().items()}
    short["gangs"]["skew"] = short["gangs"]["skew"][:-1]
    with pytest.raises(ValueError, match="different lengths"):
        Trace.restored([], {}, short)

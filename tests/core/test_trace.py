"""The trace: small, columnar, wrapped without copying, expanded only when asked, and mergeable."""

import numpy as np
import pytest

from core.messages import Blame
from core.tables import Strings, Table
from core.trace import ENDED, FAILED, STARTED, Trace


def traced() -> Trace:
    """One client, one run of two gangs on two hosts of two devices, and a transfer between them."""
    trace = Trace()
    trace.place(0, island=0, devices=((0, 4),), per_host=2)
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


def test_a_row_says_what_is_known_and_minus_one_what_is_not() -> None:
    forward, back = traced().rows("gangs")
    assert forward["run"] == 7
    assert (forward["step"], forward["island"], forward["place"]) == ("forward", 0, 0)
    assert [forward[name] for name in ("ready", "entered", "enqueued", "started", "ended", "skew")] == [
        11, 12, 20, 30, 50, 6,
    ]  # fmt: skip
    assert back["skew"] == -1


def test_times_that_were_worked_out_are_flagged() -> None:
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


def test_what_is_over_or_unknown_takes_no_more() -> None:
    trace = traced()
    trace.update(100, ended=1000)
    trace.update(999, ended=1000)
    trace.hosts(100, [1, 2])
    trace.ended(7, 1000)
    assert [row["ended"] for row in trace.rows("gangs")] == [50, 90]


def test_rows_expand_to_devices_from_their_hosts_arrival() -> None:
    assert list(traced().intervals()) == [
        (0, 100, 20, 50), (1, 100, 20, 50), (2, 100, 26, 50), (3, 100, 26, 50),
        (0, 102, 60, 90), (1, 102, 60, 90), (2, 102, 60, 90), (3, 102, 60, 90),
    ]  # fmt: skip


def test_a_place_that_starts_inside_an_island_finds_its_hosts() -> None:
    trace = Trace()
    # The last device of one host, the first of the next.
    trace.place(3, island=1, devices=((12, 14),), per_host=2, first=11)
    trace.gang(1, -1, "a", 1, 3, entered=0)
    trace.hosts(1, [5, 8])
    trace.update(1, started=9, ended=10)
    assert list(trace.intervals()) == [(12, 1, 5, 10), (13, 1, 8, 10)]


def test_a_gang_that_has_not_ended_has_no_interval() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 4),))
    trace.gang(1, -1, "a", 0, 0, started=5)
    assert list(trace.intervals()) == []


def test_a_gang_of_2048_devices_takes_about_a_byte_a_device() -> None:
    trace = Trace()
    trace.place(0, 0, ((0, 2048),), per_host=4)
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
    with pytest.raises(ValueError, match="zip"):
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
    assert list(empty.intervals()) == list(traced().intervals())


def test_merging_the_same_twice_is_merging_it_once() -> None:
    trace = traced()
    trace.merge(traced())
    for name in ("clients", "runs", "gangs", "transfers"):
        assert list(trace.rows(name)) == list(traced().rows(name)), name
    assert list(trace.intervals()) == list(traced().intervals())


def test_what_was_seen_replaces_what_was_worked_out_and_fills_what_was_unknown() -> None:
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
    there.level(3, 0, 10, 20, 100)
    here.merge(there)
    gang = list(here.rows("gangs"))[-1]
    assert (gang["run"], gang["step"]) == (8, "answer")
    assert list(here.intervals())[-4:] == [(0, 200, 6, 10), (1, 200, 6, 10), (2, 200, 9, 10), (3, 200, 9, 10)]
    assert list(here.rows("memory")) == [
        {"at": 3, "place": 0, "resident": 10, "committed": 20, "capacity": 100}
    ]


def test_what_a_merge_ended_is_over() -> None:
    here, there = Trace(), Trace()
    here.gang(1, -1, "step", 0, 0, entered=10)
    there.gang(1, -1, "step", 0, 0, entered=10, ended=60)
    here.merge(there)
    here.update(1, ended=1000)
    assert [row["ended"] for row in here.rows("gangs")] == [60]

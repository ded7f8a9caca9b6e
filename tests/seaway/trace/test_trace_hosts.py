"""The times that hosts saw of their gangs, put into their controller's trace. Inferred times are flagged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.model.topology import small
from core.record.trace import ENDED
from core.record.trace import Trace as CoreTrace
from seaway.machines import of_setup
from seaway.trace import Trace
from seaway.trace.hosts import NOTHING, Seen, joined

from . import traces

US, MS = 1_000, 1_000_000
CLUSTER = small(2, 2)  # hosts 0 and 1 of devices 0-1 and 2-3
BOUND = 30 * US


def controllers(*gangs: tuple[int, int], place: int = 0) -> CoreTrace:
    """(entered, reported) of gangs on all four devices, as a controller records them."""
    core = CoreTrace()
    core.place(0, 0, ((0, 4),), 2)
    core.place(1, 0, ((2, 4),), 2)
    core.client(1, "ann", 1, 0, 0)
    for seq, (entered, reported) in enumerate(gangs, 1):
        core.submitted(seq, 1, seq, "train", 0)
        core.gang(seq, seq, "step", 0, place, ready=0, entered=entered)
        core.update(seq, ENDED, ended=reported)
        core.ended(seq, reported)
    return core


def with_hosts(core: CoreTrace, *seen: Seen) -> Trace:
    merged, told = joined(core, seen, of_setup(CLUSTER))
    return Trace(merged, CLUSTER, origin=0, told=told)


def on_both(seq: int, enqueued: tuple[int, int], ended: tuple[int, int], collective: bool = True) -> list[Seen]:
    return [(host, seq, enqueued[host], ended[host], BOUND + host, collective) for host in (0, 1)]


def test_a_hosts_gang_starts_when_it_is_there_and_the_one_before_it_is_over() -> None:
    core = controllers((1 * MS, 9 * MS), (2 * MS, 12 * MS), (20 * MS, 29 * MS))
    trace = with_hosts(
        core,
        *on_both(1, (2 * MS, 3 * MS), (6 * MS, 7 * MS)),
        *on_both(2, (3 * MS, 4 * MS), (9 * MS, 9 * MS)),
        *on_both(3, (22 * MS, 21 * MS), (25 * MS, 26 * MS)),
    )
    rows = trace.hosts()
    assert rows["seq"].tolist() == [1, 1, 2, 2, 3, 3]
    assert rows["host"].tolist() == [0, 1] * 3
    assert rows["enqueued_us"].tolist() == [2000, 3000, 3000, 4000, 22000, 21000]
    assert rows["started_us"].tolist() == [2000, 3000, 6000, 7000, 22000, 21000]
    assert rows["ended_us"].tolist() == [6000, 7000, 9000, 9000, 25000, 26000]
    assert rows["bound_us"].tolist() == [30, 30.001] * 3
    assert rows["inferred"].tolist() == ["started"] * 6
    assert rows["client"].tolist() == ["ann"] * 6
    assert rows["program"].tolist() == ["train"] * 6
    assert rows["step"].tolist() == ["step"] * 6


def test_a_collective_starts_with_its_last_host_and_ends_with_the_last() -> None:
    core = controllers((1 * MS, 9 * MS), (2 * MS, 12 * MS))
    told = [*on_both(1, (2 * MS, 3 * MS), (6 * MS, 7 * MS)), *on_both(2, (3 * MS, 4 * MS), (9 * MS, 9 * MS))]
    gangs = with_hosts(core, *told).gangs()
    assert gangs["enqueued_us"].tolist() == [2000, 3000]
    assert gangs["started_us"].tolist() == [3000, 7000]
    assert gangs["ended_us"].tolist() == [7000, 9000]
    assert gangs["skew_us"].tolist() == [1000, 0]
    assert gangs["inferred"].tolist() == ["started", "started"]
    assert gangs["bound_us"].tolist() == [30.001, 30.001]
    assert Trace(core, CLUSTER, origin=0).gangs()["inferred"].tolist() == ["started,ended"] * 2
    assert Trace(core, CLUSTER, origin=0).gangs()["bound_us"].tolist() == [0, 0]


def test_a_gang_without_collectives_runs_on_each_host_by_itself_and_pictures_show_it() -> None:
    core = controllers((1 * MS, 9 * MS), (2 * MS, 12 * MS))
    told = [
        *on_both(1, (2 * MS, 3 * MS), (6 * MS, 4 * MS), False), *on_both(2, (3 * MS, 4 * MS), (9 * MS, 5 * MS), False)
    ]  # fmt: skip
    trace = with_hosts(core, *told)
    table = trace.intervals()
    assert table["device"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["started_us"].tolist() == [2000, 6000] * 2 + [3000, 4000] * 2
    assert table["ended_us"].tolist() == [6000, 9000] * 2 + [4000, 5000] * 2
    assert trace.gangs()["skew_us"].tolist() == [0, 0]
    bars = trace.plot(window=("1ms", "10ms")).axes[0].collections
    spans = {(low, high) for bar in bars for low, high in _extents(bar)}
    assert {(2.0, 6.0), (6.0, 9.0), (3.0, 4.0), (4.0, 5.0)} <= spans


def _extents(bar: object) -> list[tuple[float, float]]:
    paths = bar.get_paths()  # type: ignore[attr-defined]
    return [(float(p.vertices[:, 0].min()), float(p.vertices[:, 0].max())) for p in paths]


def test_bounds_from_the_controller_apply_too() -> None:
    """A gang is in the order before it was enqueued, and over before its end was reported."""
    core = controllers((5 * MS, 9 * MS))
    rows = with_hosts(core, *on_both(1, (4 * MS, 6 * MS), (8 * MS, 10 * MS))).hosts()
    assert rows["enqueued_us"].tolist() == [5000, 6000]
    assert rows["ended_us"].tolist() == [8000, 9000]


def test_gangs_without_times_of_hosts_end_some_time_before_their_report() -> None:
    core = controllers((1 * MS, 9 * MS), (2 * MS, 14 * MS), (3 * MS, 19 * MS))
    told = [*on_both(1, (2 * MS, 2 * MS), (7 * MS, 7 * MS)), *on_both(3, (4 * MS, 4 * MS), (17 * MS, 17 * MS))]
    trace = with_hosts(core, *told)
    gangs = trace.gangs()
    assert gangs["ended_us"].tolist() == [7000, 12000, 17000]  # reports took 2 ms
    assert gangs["started_us"].tolist() == [7000 - 5000, 7000, 12000]
    assert gangs["inferred"].tolist() == ["started", "started,ended", "started"]
    assert trace.hosts()["seq"].tolist() == [1, 1, 3, 3]
    assert trace.utilization("total")["busy_fraction"].tolist() == [1.0]


def test_a_gang_with_times_of_some_hosts_has_rows_for_those() -> None:
    core = controllers((1 * MS, 9 * MS))
    trace = with_hosts(core, *on_both(1, (2 * MS, 2 * MS), (7 * MS, 7 * MS))[:1])
    assert trace.hosts()["host"].tolist() == [0]
    assert trace.gangs()["inferred"].tolist() == ["started,ended"]
    assert trace.gangs()["ended_us"].tolist() == [9000]


def test_impossible_times_of_a_host_are_left_out() -> None:
    core = controllers((1 * MS, 9 * MS), place=1)  # on host 1 alone
    seen = [*on_both(1, (2 * MS, 2 * MS), (7 * MS, 7 * MS)), *on_both(77, (2 * MS, 2 * MS), (7 * MS, 7 * MS))]
    trace = with_hosts(core, *seen)
    assert trace.hosts()[["seq", "host"]].to_numpy().tolist() == [[1, 1]]
    assert trace.gangs()["ended_us"].tolist() == [7000]


def test_without_times_of_hosts_the_controllers_trace_is_unchanged() -> None:
    core = controllers((1 * MS, 9 * MS))
    merged, told = joined(core, [], of_setup(CLUSTER))
    assert merged is core
    assert told is NOTHING
    assert len(Trace(core, CLUSTER).hosts()) == 0


def test_times_count_from_the_beginning_of_the_trace() -> None:
    core = controllers((1 * MS, 9 * MS))
    merged, told = joined(core, on_both(1, (2 * MS, 3 * MS), (6 * MS, 7 * MS)), of_setup(CLUSTER))
    # The client is there at 0; the trace begins a millisecond before that:
    rows = Trace(merged, CLUSTER, origin=-1 * MS, told=told).hosts(window=("3.5ms", None))
    assert rows["enqueued_us"].tolist() == [3000, 4000]
    assert len(Trace(merged, CLUSTER, told=told).hosts(window=("6.5ms", None))) == 1


def test_times_of_hosts_are_saved_with_their_trace_and_deleted_with_it(tmp_path: Path) -> None:
    trace = with_hosts(controllers((1 * MS, 9 * MS)), *on_both(1, (2 * MS, 3 * MS), (6 * MS, 7 * MS)))
    again = Trace.load(trace.save(tmp_path / "run"))
    assert again.hosts().equals(trace.hosts())
    assert again.gangs().equals(trace.gangs())
    Trace(controllers((1 * MS, 9 * MS)), CLUSTER).save(tmp_path / "run")
    assert len(Trace.load(tmp_path / "run").hosts()) == 0


def test_a_simulated_trace_has_the_same_table_without_uncertainty() -> None:
    core = traces.shared(gangs=20, hosts=4)
    trace = Trace(core)
    rows = trace.hosts()
    assert len(rows) == 20 * 4
    assert (rows["bound_us"] == 0).all()
    assert (rows["inferred"] == "").all()
    table = trace.intervals()
    each = table[table["device"] % 4 == 0].sort_values(["seq", "host"])
    for column in ("started_us", "ended_us"):
        assert rows[column].tolist() == each[column].tolist()
    assert (rows["enqueued_us"].to_numpy() <= each["arrived_us"].to_numpy()).all()
    assert rows["program"].tolist() == each["program"].tolist()
    one = trace.hosts(window=(trace.span[0], f"{trace.span[0] + 1}ns"))
    assert one["seq"].tolist() == [0] * 4
    with pytest.raises(ValueError, match=r"80 gangs on hosts; limit=10\. Take a window"):
        trace.hosts(limit=10)


def test_many_gangs_of_many_hosts_are_joined_as_by_a_plain_loop() -> None:
    """Compared with the rule itself, on slices that overlap."""
    dice, core, seen = np.random.default_rng(4), CoreTrace(), list[Seen]()
    places = {0: ((0, 4),), 1: ((2, 4),), 2: ((0, 1),), 3: ((1, 3),)}
    for key, stretch in places.items():
        core.place(key, 0, stretch, 2)
    free, wanted = dict.fromkeys(range(4), 0), []
    for seq in range(200):
        place = int(dice.integers(0, 4))
        devices = range(*places[place][0])
        entered = 10 * seq
        core.gang(seq, -1, "g", 0, place, entered=entered)
        core.update(seq, ENDED, ended=10**9)
        for host in sorted({device // 2 for device in devices}):
            mine = [device for device in devices if device // 2 == host]
            enqueued = entered + int(dice.integers(0, 100))
            started = max([enqueued, *(free[device] for device in mine)])
            ended = started + int(dice.integers(0, 50))
            free.update(dict.fromkeys(mine, ended))
            seen.append((host, seq, enqueued, ended, 1, True))
            wanted.append((seq, host, enqueued, started, ended, 1))
    dice.shuffle(seen)
    _, told = joined(core, [tuple(map(int, row)) for row in seen], of_setup(CLUSTER))  # type: ignore[misc]
    assert list(zip(*(column.tolist() for column in told), strict=True)) == wanted

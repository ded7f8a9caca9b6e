"""Tables of large traces are made a part at a time, and only for the hosts that are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.record.trace import Trace as CoreTrace
from seaway.trace import Trace, intervals, place_groups
from seaway.trace.place_groups import HostTimes, PlaceGroup
from seaway.trace.times import Ints

from . import traces

HOSTS = 16


@contextmanager
def parts_of(numbers: int) -> Iterator[None]:
    """Expand so many numbers at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place_groups, "BLOCK", numbers)
        patch.setattr(intervals, "PIECE", numbers)
        yield


def tables(trace: Trace) -> list[pd.DataFrame]:
    shown = ("5ns", "95ns")
    return [
        trace.intervals(),
        trace.intervals(shown, sample=4),
        *(trace.utilization(by, 3, shown) for by in ("device", "host", "client", "total")),
        trace.gangs(),
        trace.clients(shown),
        trace.hosts(),
    ]


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=10, deadline=None)
def test_tables_do_not_depend_on_how_much_is_expanded_at_a_time(seed: int, numbers: int) -> None:
    core, cluster, truth = traces.drawn(seed)
    if not truth:
        return
    whole = tables(Trace(core, cluster))
    with parts_of(numbers):
        parts = tables(Trace(core, cluster))
    for one, other in zip(whole, parts, strict=True):
        pd.testing.assert_frame_equal(one, other)


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_intervals_of_some_devices_are_those_of_all(seed: int) -> None:
    core, cluster, _ = traces.drawn(seed)
    trace = Trace(core, cluster)
    whole = trace.intervals()
    some = trace.sample(3)
    mine = whole[whole["device"].isin(some)].reset_index(drop=True)
    pd.testing.assert_frame_equal(trace.intervals(sample=3), mine)


def test_a_device_whose_gangs_start_out_of_order_is_sorted_by_time() -> None:
    """Clocks of hosts may disagree: here the second gang of the order starts first."""
    core = CoreTrace()
    core.place(0, 0, ((0, 2),), devices_per_host=2)
    for seq, start in enumerate([300, 100, 200]):
        core.gang(seq, -1, "a", 0, 0, started=start, ended=start + 50)
    frame = Trace(core).intervals()
    assert frame["device"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["seq"].tolist() == [1, 2, 0, 1, 2, 0]


def test_a_row_of_intervals_takes_few_bytes() -> None:
    frame = Trace(traces.shared(gangs=200, hosts=HOSTS)).intervals()
    for name in ("island", "client", "program", "step"):
        assert isinstance(frame[name].dtype, pd.CategoricalDtype)
        assert frame[name].cat.codes.dtype == np.int8
    # Three integers and five times of 8 bytes each, and four names of 1 byte; the names themselves once.
    assert frame.memory_usage(deep=True).sum() < 70 * len(frame)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many gangs and hosts were expanded at once, for each time."""
    found: list[tuple[int, int]] = []
    times = PlaceGroup.times

    def counted(self: PlaceGroup, which: Ints, hosts: Ints | None = None) -> HostTimes:
        made = times(self, which, hosts)
        found.append((made.taken.shape[0], made.taken.shape[1]))
        return made

    monkeypatch.setattr(PlaceGroup, "times", counted)
    return found


def test_a_sample_of_devices_expands_only_their_hosts(asked: list[tuple[int, int]]) -> None:
    trace = Trace(traces.shared(gangs=300, hosts=HOSTS))
    assert len(trace.intervals(sample=3)) == 900
    trace.plot(window=(None, None), rows=3)
    trace.utilization("device", 10, devices=[0, 1])
    assert asked
    assert max(hosts for _, hosts in asked) <= 3


def test_intervals_are_expanded_in_pieces(asked: list[tuple[int, int]]) -> None:
    with parts_of(64):
        assert len(Trace(traces.shared(gangs=300, hosts=HOSTS)).intervals(sample=4)) == 1_200
    assert max(gangs for gangs, _ in asked) <= 64 // 4


def test_pictures_of_busy_devices_expand_no_hosts(asked: list[tuple[int, int]]) -> None:
    trace = Trace(traces.shared(gangs=300, hosts=HOSTS))
    trace.plot_utilization()
    trace.plot_shares()
    trace.plot_shares(bins=10)
    trace.summary()
    trace.gangs()
    assert asked == []


def lone(gangs: int, hosts: int) -> CoreTrace:
    """Gangs without a collective: each host runs its part as soon as it can."""
    core = CoreTrace()
    core.place(0, 0, ((0, hosts),), devices_per_host=1)
    numbers = np.arange(hosts)
    for seq in range(gangs):
        core.gang(seq, -1, "a", 0, 0, started=100 * seq + 10)
        core.hosts(seq, 100 * seq + 10 + numbers)
        core.ends(seq, 100 * seq + 60 + 2 * numbers)
    return core


def test_gangs_without_collectives_are_summed_by_their_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only gangs that a window or a bin cuts are expanded to hosts."""
    cut: list[int] = []
    parts = PlaceGroup.lone_parts

    def counted(self: PlaceGroup, which: Ints, hosts: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        cut.extend(which.tolist())
        return parts(self, which, hosts)

    monkeypatch.setattr(PlaceGroup, "lone_parts", counted)
    trace = Trace(lone(gangs=50, hosts=4))
    each = 4 * 50 + sum(range(4))
    assert trace.gangs()["device_us"].tolist() == pytest.approx([each / 1_000] * 50)
    assert cut == []
    busy = trace.utilization("total", [0, "1.04us", "5us"])["busy_fraction"]
    assert cut == [10]
    inside = sum(1_040 - (1_010 + host) for host in range(4))
    assert busy.tolist() == pytest.approx([(10 * each + inside) / 4 / 1_040, (40 * each - inside) / 4 / 3_960])


def test_facts_of_a_trace_that_has_grown_are_freed() -> None:
    core = lone(gangs=3, hosts=2)
    trace = Trace(core)
    old = weakref.ref(trace.facts())
    trace.intervals()
    core.gang(99, -1, "a", 0, 0, started=1_000, ended=1_100)
    assert len(trace.intervals()) == 4 * 2
    assert old() is None

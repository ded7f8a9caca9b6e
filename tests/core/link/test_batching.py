"""Tests when a host reports the ends of its gangs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.link.batching import APART, ReportPacer


def test_the_only_gang_under_way_is_reported_at_once() -> None:
    """As when a client waits for each call, however fast it calls."""
    found = ReportPacer()
    for now in range(0, 100, 10):
        assert found.due(now, 1, 0) == now
        found.reported(now)


def test_an_end_after_silence_is_reported_at_once() -> None:
    found = ReportPacer()
    found.reported(7)
    assert found.due(7 + APART, 1, 31) == 7 + APART


def test_ends_of_a_busy_host_are_reported_together() -> None:
    found = ReportPacer()
    found.reported(1000)
    assert [found.due(1000 + ended, ended, 32 - ended) for ended in (1, 8, 15)] == [1000 + APART] * 3


def test_half_of_what_was_under_way_is_reported_at_once() -> None:
    found = ReportPacer()
    found.reported(1000)
    assert found.due(1016, 16, 16) == 1016


def test_what_was_under_way_lately_counts_although_little_is_left() -> None:
    """Otherwise reports get smaller and smaller while the next gangs are on their way."""
    found = ReportPacer()
    assert found.due(0, 1, 31) == 0
    found.reported(0)
    assert found.due(1, 16, 16) == 1
    found.reported(1)
    assert found.due(2, 8, 8) == 1 + APART
    assert found.due(2, 12, 4) == 2
    assert found.due(3, 4, 0) == 3


@given(st.lists(st.integers(1, APART), min_size=1, max_size=40), st.integers(2, 40))
def test_devices_never_run_dry_for_want_of_a_report_and_no_end_waits_longer_than_the_bound(
    takes: list[int], window: int
) -> None:
    """A host that is given a gang for each end that it has reported, up to a window."""
    found, now, ended, under_way = ReportPacer(), 0, 0, window
    first = 0  # when the first unreported end was
    for took in takes:
        due = found.due(now, ended, under_way) if ended else now + took
        if ended and due <= now + took:
            assert due - first <= APART
            found.reported(due)
            under_way, ended = under_way + ended, 0
        now += took
        first = now if not ended else first
        under_way, ended = under_way - 1, ended + 1
        if found.due(now, ended, under_way) <= now:
            found.reported(now)
            under_way, ended = under_way + ended, 0
        assert under_way >= ended
        assert under_way > 0

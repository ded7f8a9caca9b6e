"""Tests when a host reports the ends of its gangs."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from core.link.batching import APART, ReportPacer


class Host:
    """A host with gangs under way, which end in order."""

    def __init__(self, under_way: int) -> None:
        self.pacer, self.under_way, self._next = ReportPacer(), deque[int](), 0
        self.launch(under_way)

    def launch(self, count: int) -> None:
        for _ in range(count):
            self.pacer.launched(self._next)
            self.under_way.append(self._next)
            self._next += 1

    def end(self, count: int, now: int) -> int:
        """Ends some gangs; returns when they are to be reported."""
        for _ in range(count):
            self.pacer.ended(self.under_way.popleft())
        return self.pacer.due(now)


def test_the_only_gang_under_way_is_reported_at_once() -> None:
    """As when a client waits for each call, however fast it calls."""
    host = Host(0)
    for now in range(0, 100, 10):
        host.launch(1)
        assert host.end(1, now) == now
        host.pacer.reported(now)


def test_an_end_after_silence_is_reported_at_once() -> None:
    host = Host(32)
    host.pacer.reported(7)
    assert host.end(1, 7 + APART) == 7 + APART


def test_ends_of_a_busy_host_are_reported_together() -> None:
    host = Host(32)
    host.pacer.reported(1000)
    assert [host.end(count, 1001) for count in (1, 4, 6)] == [1000 + APART] * 3


def test_half_of_what_was_under_way_is_reported_at_once() -> None:
    host = Host(32)
    host.pacer.reported(1000)
    assert host.end(15, 1015) == 1000 + APART
    assert host.end(1, 1016) == 1016


def test_what_was_under_way_lately_counts_although_little_is_left() -> None:
    """Otherwise reports get smaller and smaller while the next gangs are on their way."""
    host = Host(32)
    assert host.end(16, 0) == 0
    host.pacer.reported(0)  # 32 were under way: three quarters of that count from now on
    assert host.end(8, 1) == APART
    assert host.end(4, 2) == 2
    host.pacer.reported(2)
    assert host.end(4, 3) == 3  # none is left


def test_gangs_that_were_abandoned_are_not_waited_for() -> None:
    host = Host(3)
    host.pacer.reported(0)
    assert host.end(1, 1) == APART
    host.pacer.abandoned(host.under_way)
    assert host.pacer.due(1) == 1


@given(st.lists(st.integers(1, APART), min_size=1, max_size=40), st.integers(2, 40))
def test_devices_never_run_dry_for_want_of_a_report_and_no_end_waits_longer_than_the_bound(
    takes: list[int], window: int
) -> None:
    """A host that is given a gang for each end that it has reported, up to a window."""
    host, now = Host(window), 0
    first = 0  # when the first unreported end was

    def report(at: int) -> None:
        host.pacer.reported(at)
        host.launch(window - len(host.under_way))

    for took in takes:
        ended = window - len(host.under_way)
        due = host.pacer.due(now)
        if ended and due <= now + took:
            assert due - first <= APART
            report(due)
            ended = 0
        now += took
        first = first if ended else now
        if host.end(1, now) <= now:
            report(now)
        assert 2 * len(host.under_way) >= window

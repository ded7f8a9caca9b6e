"""The estimate of another clock is never wrong by more than its bound, however long messages take."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.record.clocks import KEPT, MILLION, RATE, ClockExchange, Estimate, PeerClock, Reading, drift, reading

S = 1_000_000_000
MS = 1_000_000


class ExchangeStep(NamedTuple):
    """The time until the next exchange, and the times that it takes.

    `drifts` says for each of these how much their clock gains, from -1 to 1, as a part of what the rate allows.
    """

    pause: int
    there: int
    think: int
    back: int
    drifts: tuple[float, float, float, float]


def spans(most: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, most), st.integers(0, 1000))


drifts = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1, 1))
steps = st.builds(ExchangeStep, spans(100 * S), spans(S), spans(S), spans(S), st.tuples(drifts, drifts, drifts, drifts))


class TwoClocks:
    """Our clock and theirs, with the true offset between them."""

    def __init__(self, offset: int, rate: int = RATE) -> None:
        self.ours, self.offset, self.rate = 0, offset, rate
        self.truth = {0: offset}  # our time -> true offset

    def go(self, time: int, part: float) -> tuple[int, int]:
        """Let this time pass. Return (our time, their time)."""
        self.ours += time
        allowed = time * self.rate // MILLION
        self.offset += max(-allowed, min(allowed, round(part * allowed)))
        self.truth[self.ours] = self.offset
        return self.ours, self.ours + self.offset

    def exchange(self, step: ExchangeStep) -> ClockExchange:
        asked, _ = self.go(step.pause + 1, step.drifts[0])
        _, received = self.go(step.there, step.drifts[1])
        _, sent = self.go(step.think, step.drifts[2])
        answered, _ = self.go(step.back, step.drifts[3])
        return ClockExchange(asked, received, max(received, sent), answered)


def wrong(clock: PeerClock, truth: dict[int, int]) -> list[tuple[int, int, Estimate | None]]:
    found = [(at, offset, clock.at(at)) for at, offset in truth.items()]
    return [each for each in found if each[2] is None or abs(each[1] - each[2].offset) > each[2].bound]


@given(st.integers(-(10**18), 10**18), st.lists(steps, min_size=1, max_size=40), st.integers(4, 64))
def test_the_true_offset_is_within_the_bound_at_all_times(offset: int, many: list[ExchangeStep], kept: int) -> None:
    two, clock = TwoClocks(offset), PeerClock(kept=kept)
    for step in many:
        clock.heard(two.exchange(step))
        assert wrong(clock, two.truth) == []
    assert clock.jumps == 0
    assert len(clock.readings) <= kept
    two.go(1000 * S, 1.0)
    assert wrong(clock, two.truth) == []


@given(st.lists(steps, min_size=1, max_size=30), spans(300 * S))
def test_an_exchange_never_makes_the_estimate_worse(many: list[ExchangeStep], ours: int) -> None:
    two, clock = TwoClocks(0), PeerClock()
    last: Estimate | None = None
    rounded = len(many) + 1  # each reading may round up by a nanosecond
    for step in many:
        exchange = two.exchange(step)
        clock.heard(exchange)
        known, alone = clock.at(ours), reading(exchange)
        assert known is not None
        assert known.bound <= (alone.high - alone.low + 1) // 2 + drift(ours - alone.at, RATE) + rounded
        assert last is None or known.bound <= last.bound + rounded
        last = known


@given(st.lists(steps, min_size=1, max_size=30), spans(300 * S))
def test_two_readings_give_the_same_estimate_as_all_readings(many: list[ExchangeStep], ours: int) -> None:
    two, clock = TwoClocks(5), PeerClock()
    for step in many:
        clock.heard(two.exchange(step))
    low = max(each.low - drift(ours - each.at, RATE) for each in clock.readings)
    high = min(each.high + drift(ours - each.at, RATE) for each in clock.readings)
    known = clock.at(ours)
    assert known is not None
    # Each reading may round up by a nanosecond.
    assert 0 <= 2 * known.bound - (high - low) <= 2 * (len(clock.readings) + 1)


@given(st.lists(steps, min_size=1, max_size=30))
def test_a_restored_clock_gives_the_same_estimates(many: list[ExchangeStep]) -> None:
    two, clock = TwoClocks(-7), PeerClock()
    for step in many:
        clock.heard(two.exchange(step))
    again = PeerClock.restored(clock.readings, clock.since, clock.rate)
    assert [again.at(at) for at in two.truth] == [clock.at(at) for at in two.truth]


def test_the_quickest_exchanges_count() -> None:
    clock = PeerClock()
    # The message to them was slow, so their clock seems to be 0.7 ms ahead.
    clock.heard(ClockExchange(0, 1_700_000, 1_700_000, 2 * MS))
    assert clock.at(MS) == Estimate(700_000, 1_000_200)
    clock.heard(ClockExchange(3 * MS, 3_030_000, 3_030_000, 3_060_000))
    known = clock.at(3_030_000)
    assert known is not None
    assert (known.offset, known.bound) == (0, 30_006)
    clock.heard(ClockExchange(4 * MS, 7 * MS, 7 * MS, 9 * MS))  # a slow exchange does not widen the bound
    later = clock.at(9 * MS)
    assert later is not None
    assert later.bound == 30_006 + drift(9 * MS - 3_030_000, RATE)


def test_the_bound_grows_until_the_next_exchange() -> None:
    clock = PeerClock(rate=200)
    clock.heard(ClockExchange(0, 50, 50, 100))
    known = [clock.at(50 + seconds * S) for seconds in (0, 1, 5)]
    assert [each.bound for each in known if each] == [51, 200_051, 1_000_051]


def test_after_a_clock_jumps_the_estimate_starts_again_and_earlier_times_are_unknown() -> None:
    clock = PeerClock()
    clock.heard(ClockExchange(0, 50, 50, 100))
    clock.heard(ClockExchange(S, S + 5 * S, S + 5 * S, S + 100))
    assert clock.jumps == 1
    assert clock.at(S - 1) is None
    known = clock.at(S + 50)
    assert known is not None
    assert abs(known.offset - 5 * S) <= known.bound <= 100


def test_a_clock_that_drifts_too_fast_is_noticed() -> None:
    two, clock = TwoClocks(0, rate=10 * RATE), PeerClock()
    for _ in range(10):
        clock.heard(two.exchange(ExchangeStep(S, 1000, 1000, 1000, (1.0, 1.0, 1.0, 1.0))))
    assert clock.jumps == 9


def test_after_another_clock_has_replaced_it_only_new_exchanges_count() -> None:
    clock = PeerClock()
    clock.heard(ClockExchange(0, 50, 50, 100))
    clock.forget(200)
    assert clock.at(50) is clock.at(300) is None
    with pytest.raises(ValueError, match="when the clock was forgotten"):
        clock.heard(ClockExchange(150, 50, 50, 260))
    clock.heard(ClockExchange(300, 50, 50, 400))
    assert clock.at(350) == Estimate(-300, 51)
    assert clock.at(100) is None


@pytest.mark.parametrize(
    ("exchange", "says"),
    [
        (ClockExchange(100, 50, 50, 99), "before its question"),
        (ClockExchange(0, 60, 50, 100), "before its question"),
        (ClockExchange(0, 0, 200, 100), "longer by their clock than the whole exchange by ours"),
        (ClockExchange(0, -(10**30), 10**30, 100), "longer by their clock than the whole exchange by ours"),
    ],
)
def test_an_impossible_exchange_is_refused_and_changes_nothing(exchange: ClockExchange, says: str) -> None:
    clock = PeerClock()
    clock.heard(ClockExchange(-100, 50, 50, -20))
    before = list(clock.readings)
    with pytest.raises(ValueError, match=says):
        clock.heard(exchange)
    assert clock.readings == before


def test_an_exchange_is_used_once() -> None:
    clock = PeerClock()
    clock.heard(ClockExchange(0, 50, 50, 100))
    with pytest.raises(ValueError, match="older than the last exchange"):
        clock.heard(ClockExchange(0, 50, 50, 100))


@pytest.mark.parametrize(
    "readings", [[Reading(5, 0, 1), Reading(5, 0, 1)], [Reading(9, 0, 1), Reading(5, 0, 1)], [Reading(0, 2, 1)]]
)
def test_impossible_readings_are_refused(readings: list[Reading]) -> None:
    with pytest.raises(ValueError, match="cannot be the readings"):
        PeerClock.restored(readings)


def test_readings_over_hours_are_few_and_the_latest_are_dense() -> None:
    two, clock = TwoClocks(0), PeerClock()
    for _ in range(10 * KEPT):
        clock.heard(two.exchange(ExchangeStep(4 * S, 50_000, 1000, 50_000, (0.0, 0.0, 0.0, 0.0))))
    assert len(clock.readings) <= KEPT
    lately = clock.readings[-KEPT // 4 :]
    assert all(b.at - a.at < 5 * S for a, b in pairwise(lately))
    assert wrong(clock, two.truth) == []

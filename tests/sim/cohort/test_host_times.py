"""Times at hosts as a pattern and a shift: what follows from them is what follows from the vectors, host by host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cohort import host_times
from sim.cohort.host_times import (
    HostTimes,
    ShiftedTimes,
    TimePattern,
    TimePatterns,
    as_vector,
    at_one,
    earliest,
    latest,
)

HOSTS = 5
NUMBERS = st.integers(-20, 20)


def vector(numbers: list[int]) -> Any:
    return np.array(numbers, dtype=np.int64)


VECTORS = st.lists(NUMBERS, min_size=HOSTS, max_size=HOSTS).map(vector)
FEW = st.lists(VECTORS.map(TimePattern), min_size=1, max_size=3)


@st.composite
def several(draw: st.DrawFn) -> list[HostTimes]:
    """Some share a pattern, as in a simulation."""
    patterns = draw(FEW)
    shifted = st.builds(ShiftedTimes, st.sampled_from(patterns), NUMBERS)
    return draw(st.lists(st.one_of(shifted, VECTORS), min_size=2, max_size=6))


@given(several(), NUMBERS)
def test_times_are_what_their_vectors_say(found: list[HostTimes], more: int) -> None:
    for times in found:
        numbers = as_vector(times).tolist()
        assert (earliest(times), latest(times)) == (min(numbers), max(numbers))
        assert as_vector(times + more).tolist() == [number + more for number in numbers]
        assert at_one(times) == numbers[0]


@given(several(), st.lists(st.one_of(NUMBERS, st.none()), min_size=6, max_size=6))
def test_the_later_of_two_is_so_at_each_host(found: list[HostTimes], others: list[int | None]) -> None:
    """Whatever was asked for before: answers that are remembered are for the same question."""
    patterns = TimePatterns(HOSTS)
    for one in found:
        for other in [*found, *[each for each in others if each is not None]]:
            expected = np.maximum(as_vector(one), as_vector(other, HOSTS))
            later = patterns.later(one, other)
            assert as_vector(later).tolist() == expected.tolist()
            assert (earliest(later), latest(later)) == (expected.min(), expected.max())


def test_two_patterns_that_meet_in_the_same_way_make_one_pattern() -> None:
    patterns = TimePatterns(3)
    rising, falling = TimePattern(vector([0, 1, 2])), TimePattern(vector([2, 1, 0]))
    made: set[TimePattern] = set()
    for at in range(100):
        later = patterns.later(ShiftedTimes(rising, at), ShiftedTimes(falling, at))
        assert isinstance(later, ShiftedTimes)
        assert as_vector(later).tolist() == [at + 2, at + 1, at + 2]
        made.add(later.pattern)
    assert len(made) == 1


def test_where_one_is_later_at_all_hosts_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = TimePatterns(3)
    rising, falling = TimePattern(vector([0, 1, 2])), TimePattern(vector([2, 1, 0]))
    monkeypatch.setattr(host_times, "TimePattern", None)
    early, late = ShiftedTimes(rising, 10), ShiftedTimes(falling, 12)
    assert patterns.later(early, late) is not early
    for one, other in ((early, late), (late, early)):
        later = patterns.later(one, other)
        assert isinstance(later, ShiftedTimes)
        assert (later.pattern, later.at) == (falling, 12)
    even = patterns.later(early, 12)
    assert isinstance(even, ShiftedTimes)
    assert (even.pattern, even.at) == (patterns.even, 12)
    assert patterns.later(early, 10) is early


def test_a_vector_that_is_later_nowhere_makes_no_vector() -> None:
    """Otherwise one that has come in once would make vectors of all that follows."""
    patterns, late = TimePatterns(3), ShiftedTimes(TimePattern(vector([0, 1, 2])), 10)
    assert patterns.later(vector([3, 10, 2]), late) is late
    assert patterns.later(late, vector([3, 10, 2])) is late
    assert as_vector(patterns.later(vector([3, 11, 2]), late)).tolist() == [10, 11, 12]


def test_no_more_patterns_are_remembered_than_memory_has_room_for() -> None:
    patterns = TimePatterns(3)
    rising = TimePattern(vector([0, 1000, 2000]))
    for at in range(10 * host_times.KEPT):
        later = patterns.later(ShiftedTimes(rising, 0), at + 1)
        assert as_vector(later).tolist() == [at + 1, max(1000, at + 1), 2000]
    assert patterns._later.cache_info().currsize <= host_times.KEPT


def test_one_number_stands_for_as_many_hosts_as_are_asked_for() -> None:
    assert as_vector(7, 3).tolist() == [7, 7, 7]
    assert at_one(7) == 7

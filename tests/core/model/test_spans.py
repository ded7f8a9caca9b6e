"""Sets of numbers as spans do what Python's sets do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.model import spans

PAIRS = st.lists(st.tuples(st.integers(-9, 30), st.integers(-9, 30)), max_size=6).map(tuple)
SETS = st.sets(st.integers(0, 30))


@given(PAIRS)
def test_spans_are_normal_if_making_them_normal_changes_nothing(pairs: spans.Spans) -> None:
    assert spans.is_normal(pairs) == (spans.normal(pairs) == pairs)
    assert spans.is_normal(spans.normal(pairs))


@given(SETS, SETS)
def test_spans_are_joined_met_and_compared_as_sets_are(one: set[int], other: set[int]) -> None:
    mine, its = spans.of(one), spans.of(other)
    assert spans.union(mine, its) == spans.of(one | other)
    assert spans.meet(mine, its) == spans.of(one & other)
    assert spans.minus(mine, its) == spans.of(one - other)
    assert spans.within(mine, its) == (one <= other)
    assert spans.overlap(mine, its) == bool(one & other)
    assert spans.count(mine) == len(one)


@given(st.lists(SETS, max_size=4))
def test_pieces_say_of_each_item_in_which_of_several_sets_it_is(sets: list[set[int]]) -> None:
    found = list(spans.pieces([spans.of(each) for each in sets]))
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    within = {item: numbers for low, high, numbers in found for item in range(low, high)}
    assert within == {
        item: tuple(number for number, each in enumerate(sets) if item in each) for item in set().union(*sets)
    }

"""Consecutive names as one: folding changes how names are said, and never which they are or in which order."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.model import FEW, Range, ranges

pieces: st.SearchStrategy[list[Any]] = st.one_of(
    st.tuples(st.integers(1, 60), st.integers(1, 3 * FEW)).map(lambda run: list(range(run[0], sum(run)))),
    st.sampled_from([[0], [0, 0], [b"x"]]),
    st.lists(st.integers(1, 60), max_size=6),
)
runs_of_names = st.lists(pieces, max_size=5).map(lambda found: list(chain.from_iterable(found)))
some_names = st.lists(st.integers(1, 80), max_size=60, unique=True)


def spans_of(names: list[int | Range]) -> list[tuple[int, int]]:
    return [(each, each) if isinstance(each, int) else (each.first, each.first + each.count - 1) for each in names]


@given(runs_of_names)
def test_folded_names_are_the_same_names_in_the_same_order(names: list[Any]) -> None:
    found = ranges.folded(names)
    assert ranges.each(found) == names
    assert ranges.number(found) == len(names)
    assert all(each.count >= FEW for each in found if isinstance(each, Range))


@given(runs_of_names)
def test_names_that_follow_one_another_become_one_range(names: list[Any]) -> None:
    wide = [each for each in ranges.folded(names) if isinstance(each, Range)]
    longest = best = 0
    for name, before in zip(names, [0, *names], strict=False):
        follows = isinstance(name, int) and isinstance(before, int) and before > 0 and name == before + 1
        longest = longest + 1 if follows else int(isinstance(name, int) and name > 0)
        best = max(best, longest)
    assert max([each.count for each in wide], default=0) == (best if best >= FEW and len(names) >= FEW else 0)


@given(some_names)
def test_ascending_names_are_in_order(names: list[int]) -> None:
    found = ranges.ascending(names)
    assert ranges.each(found) == sorted(names)
    wide = [each for each in found if isinstance(each, Range)]
    assert all(each.count >= FEW for each in wide)
    assert not any(high + 1 == low for (_, high), (low, _) in pairwise(spans_of(list(wide))))


@given(st.lists(st.integers(1, 40) | st.builds(Range, st.integers(1, 40), st.integers(1, 12)), max_size=8))
def test_a_name_that_is_said_twice_is_noticed_in_whichever_form(names: list[int | Range]) -> None:
    every = ranges.each(names)
    assert ranges.once(names) == (len(set(every)) == len(every))


@given(st.sets(st.integers(1, 60)), st.randoms(use_true_random=False))
def test_names_are_joined_into_as_few_ranges_as_can_be(names: set[int], order: Random) -> None:
    several = ranges.ascending(names, few=1 + len(names) % 3)
    order.shuffle(several)
    found = ranges.joined(several)
    assert ranges.each(found) == sorted(names)
    assert found == ranges.ascending(names, few=2)

"""A gang of several equal steps ends with the step under way when the word comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.model import GangSteps
from tests.laws import examples


@given(steps=st.integers(1, 50), each=st.integers(1, 1000), begun=st.integers(0, 1000), words=st.lists(st.integers(0)))
@examples(50)
def test_it_ends_at_the_first_boundary_at_or_after_the_first_word(
    steps: int, each: int, begun: int, words: list[int]
) -> None:
    gang = GangSteps(steps)
    assert gang.begin(begun, each) == steps * each
    words = sorted(begun + word for word in words)
    for word in words:
        gang.cut(word)
    boundaries = [begun + number * each for number in range(steps + 1)]
    ends = next((at for at in boundaries if words and at >= words[0]), boundaries[-1])
    assert gang.ends == ends
    assert gang.number - gang.undone == boundaries.index(ends)


def test_one_that_has_not_begun_does_no_step() -> None:
    gang = GangSteps(3)
    gang.cut(7)
    assert (gang.begin(10, 5), gang.undone) == (0, 3)
    later = GangSteps(3)
    later.begin(10, 5)  # it is known when it will
    later.cut(7)
    assert (later.undone, later.ends) == (3, 10)


def test_steps_that_take_no_time_are_all_done_when_the_word_comes() -> None:
    gang = GangSteps(3)
    gang.begin(10, 0)
    gang.cut(10)
    assert (gang.undone, gang.ends) == (0, 10)

"""How long a process waits for more to say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.gathering import FREE, GATHER, GATHER_MOST, SMALL, Gathering


def test_a_few_words_go_at_once() -> None:
    found = Gathering()
    assert [found.pause(0, 1) for _ in range(FREE + 2)] == [*[0] * FREE, GATHER, 2 * GATHER]


def test_who_says_a_word_now_and_then_is_never_held_up() -> None:
    found = Gathering()
    assert [found.pause(turn * GATHER, 1) for turn in range(9)] == [0] * 9


def test_after_a_while_nobody_remembers_what_was_said() -> None:
    found = Gathering()
    assert found.pause(0, 500) == GATHER_MOST
    assert found.pause(GATHER_MOST + FREE * GATHER, 1) == 0


def test_the_more_goes_together_the_longer_is_waited_for_more_but_not_for_ever() -> None:
    assert [Gathering().pause(7, FREE + more) for more in (-1, 0, 1, 2, 3, 4, 5, 500)] == [
        0, 0, GATHER, 2 * GATHER, 3 * GATHER, GATHER_MOST, GATHER_MOST, GATHER_MOST,
    ]  # fmt: skip


def test_behind_large_contents_nobody_waits() -> None:
    found = Gathering()
    assert [found.pause(0, 1, SMALL) for _ in range(9)] == [0] * 9
    assert found.pause(0, FREE + 1, SMALL - 1) == GATHER


def test_pauses_that_really_last_longer_are_taken_as_they_are() -> None:
    found = Gathering(each=1_200_000, most=2_000_000)
    assert [found.pause(0, FREE + 1), found.pause(0, 2)] == [1_200_000, 2_000_000]


NUMBERS = st.lists(st.integers(1, 6), min_size=1, max_size=30)


@given(NUMBERS)
def test_a_stream_goes_no_faster_than_a_word_in_each_so_long_but_for_the_first_few(
    numbers: list[int],
) -> None:
    found, now, most = Gathering(most=1000 * GATHER), 0, 0
    for number in numbers:
        pause = found.pause(now, number)
        now, most = now + pause, max(most, pause)
    assert now == max(0, sum(numbers) - FREE) * GATHER
    assert most <= max(numbers) * GATHER


@given(NUMBERS, st.integers(0, 9 * GATHER), st.integers(0, 9 * GATHER))
def test_who_comes_later_waits_no_longer(numbers: list[int], one: int, other: int) -> None:
    def pause(gap: int) -> int:
        found, now = Gathering(), 0
        for number in numbers:
            now += found.pause(now, number)
        return found.pause(now + gap, 1)

    assert 0 <= pause(max(one, other)) <= pause(min(one, other)) <= GATHER_MOST

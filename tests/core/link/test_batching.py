"""How long a process waits for more to say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.link.batching import FREE, GATHER, GATHER_MOST, SMALL, Gathering


def test_a_few_words_go_at_once() -> None:
    found = Gathering()
    assert [found.pause(0, 1) for _ in range(FREE + 2)] == [*[0] * FREE, GATHER, 2 * GATHER]


def test_two_words_that_go_together_every_two_milliseconds_are_never_held_up() -> None:
    """A call that is waited for: its order, and word of what is not held any more."""
    found = Gathering()
    assert [found.pause(2 * turn * GATHER, 2) for turn in range(50)] == [0] * 50


def test_who_says_a_word_now_and_then_is_never_held_up() -> None:
    found = Gathering()
    assert [found.pause(turn * GATHER, 1) for turn in range(9)] == [0] * 9


def test_after_a_while_nobody_remembers_what_was_said() -> None:
    found = Gathering()
    assert found.pause(0, 500) == GATHER_MOST
    assert found.pause(GATHER_MOST + FREE * GATHER, 1) == 0


def test_the_more_goes_together_the_longer_is_waited_for_more_but_not_for_ever() -> None:
    assert [Gathering().pause(7, number) for number in (1, 2, 3, 4, 5, 9, 11, 500)] == [
        0, 0, 0, GATHER // 2, GATHER, 3 * GATHER, GATHER_MOST, GATHER_MOST,
    ]  # fmt: skip


def test_behind_large_contents_nobody_waits() -> None:
    found = Gathering()
    assert [found.pause(0, 1, SMALL) for _ in range(9)] == [0] * 9
    assert found.pause(0, 5, SMALL - 1) == GATHER


def test_pauses_that_really_last_longer_are_taken_as_they_are() -> None:
    found = Gathering(each=1_200_000, most=2_000_000)
    assert [found.pause(0, 5), found.pause(0, 3)] == [1_200_000, 2_000_000]


NUMBERS = st.lists(st.integers(1, 6), min_size=1, max_size=30)


@given(NUMBERS)
def test_a_stream_goes_at_its_rate_but_for_the_first_few_words(
    numbers: list[int],
) -> None:
    found, now, most = Gathering(most=1000 * GATHER), 0, 0
    for number in numbers:
        pause = found.pause(now, number)
        now, most = now + pause, max(most, pause)
    assert now == max(0, sum(1 + number for number in numbers) - 2 * FREE) * GATHER // 2
    assert most <= max(numbers) * GATHER


@given(NUMBERS, st.integers(0, 9 * GATHER), st.integers(0, 9 * GATHER))
def test_who_comes_later_waits_no_longer(numbers: list[int], one: int, other: int) -> None:
    def pause(gap: int) -> int:
        found, now = Gathering(), 0
        for number in numbers:
            now += found.pause(now, number)
        return found.pause(now + gap, 1)

    assert 0 <= pause(max(one, other)) <= pause(min(one, other)) <= GATHER_MOST

"""Tests how long a sender pauses between batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.link.batching import FREE, GATHER, GATHER_MOST, SMALL, BatchPacer


def test_a_few_batches_go_at_once() -> None:
    found = BatchPacer()
    assert [found.pause(0, 1) for _ in range(FREE + 2)] == [*[0] * FREE, GATHER, 2 * GATHER]


def test_two_messages_together_every_two_milliseconds_never_wait() -> None:
    """As when a client waits for each call: the call, and a message with the buffers that it no longer holds."""
    found = BatchPacer()
    assert [found.pause(2 * turn * GATHER, 2) for turn in range(50)] == [0] * 50


def test_a_single_message_now_and_then_never_waits() -> None:
    found = BatchPacer()
    assert [found.pause(turn * GATHER, 1) for turn in range(9)] == [0] * 9


def test_batches_of_long_ago_do_not_count() -> None:
    found = BatchPacer()
    assert found.pause(0, 500) == GATHER_MOST
    assert found.pause(GATHER_MOST + FREE * GATHER, 1) == 0


def test_larger_batches_make_longer_pauses_up_to_a_bound() -> None:
    assert [BatchPacer().pause(7, number) for number in (1, 2, 3, 4, 5, 9, 11, 500)] == [
        0, 0, 0, GATHER // 2, GATHER, 3 * GATHER, GATHER_MOST, GATHER_MOST,
    ]  # fmt: skip


def test_there_is_no_pause_after_a_large_batch() -> None:
    found = BatchPacer()
    assert [found.pause(0, 1, SMALL) for _ in range(9)] == [0] * 9
    assert found.pause(0, 5, SMALL - 1) == GATHER


def test_pauses_that_last_longer_than_planned_are_counted_as_they_were() -> None:
    found = BatchPacer(each=1_200_000, most=2_000_000)
    assert [found.pause(0, 5), found.pause(0, 3)] == [1_200_000, 2_000_000]


NUMBERS = st.lists(st.integers(1, 6), min_size=1, max_size=30)


@given(NUMBERS)
def test_a_stream_flows_at_its_rate_except_for_the_first_few_batches(
    numbers: list[int],
) -> None:
    found, now, most = BatchPacer(most=1000 * GATHER), 0, 0
    for number in numbers:
        pause = found.pause(now, number)
        now, most = now + pause, max(most, pause)
    assert now == max(0, sum(1 + number for number in numbers) - 2 * FREE) * GATHER // 2
    assert most <= max(numbers) * GATHER


@given(NUMBERS, st.integers(0, 9 * GATHER), st.integers(0, 9 * GATHER))
def test_a_later_batch_waits_no_longer(numbers: list[int], one: int, other: int) -> None:
    def pause(gap: int) -> int:
        found, now = BatchPacer(), 0
        for number in numbers:
            now += found.pause(now, number)
        return found.pause(now + gap, 1)

    assert 0 <= pause(max(one, other)) <= pause(min(one, other)) <= GATHER_MOST

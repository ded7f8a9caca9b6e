"""How long a process waits for more to say."""

from __future__ import annotations

from core.gathering import GATHER, GATHER_MOST, SMALL, pause_after


def test_the_more_went_together_the_longer_is_waited_for_more_but_not_for_ever() -> None:
    assert [pause_after(number) for number in (1, 2, 3, 4, 5, 500)] == [
        GATHER, 2 * GATHER, 3 * GATHER, GATHER_MOST, GATHER_MOST, GATHER_MOST,
    ]  # fmt: skip


def test_behind_large_contents_nobody_waits() -> None:
    assert pause_after(1, SMALL - 1) == GATHER
    assert pause_after(1, SMALL) == 0


def test_pauses_that_really_last_longer_are_taken_as_they_are() -> None:
    assert pause_after(2, each=1_200_000, most=2_000_000) == 2_000_000

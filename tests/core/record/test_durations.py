"""Estimates of how long gangs took: gangs queued behind two others give the best ones."""

from __future__ import annotations

from core.record.durations import DurationSample, EndedGang, samples, taken
from core.record.trace import TracedPlace

PLACES = {0: TracedPlace(0, ((0, 4),), 2, 0), 1: TracedPlace(0, ((2, 6),), 2, 0)}


def gang(entered: int, ended: int, what: str | None = "f", place: int = 0, failed: bool = False) -> EndedGang[str]:
    return EndedGang(ended, entered, place, what, failed)


def test_a_gang_behind_two_others_is_deep_and_one_behind_one_is_not() -> None:
    queue = [gang(0, 50), gang(40, 80), gang(45, 110), gang(100, 120), gang(130, 150)]
    assert list(samples(queue, PLACES)) == [
        DurationSample("f", 30, False),
        DurationSample("f", 30, True),
        DurationSample("f", 10, False),
    ], "the first and the last came to idle devices"


def test_enough_deep_samples_are_used_alone_and_fewer_together_with_the_others() -> None:
    """Samples that are not deep include the time of their messages, here 90."""
    shallow = [gang(max(0, 100 * at - 1), 100 * at + 100) for at in range(4)]
    burst = [gang(399, 410 + 10 * at) for at in range(4)]
    assert taken(shallow + burst, PLACES) == {"f": [10, 10, 10]}
    assert taken(shallow + burst[:3], PLACES) == {"f": [100, 100, 100, 10, 10, 10]}


def test_unknown_gangs_give_no_sample() -> None:
    first = gang(0, 50)
    assert not list(samples([first, gang(1, 80, None)], PLACES)), "what the gang ran is unknown"
    assert not list(samples([first, gang(1, 80, failed=True)], PLACES)), "how far it came is unknown"
    assert not list(samples([gang(0, 50, place=7), gang(1, 80, place=7)], PLACES)), "where it was is unknown"
    assert not list(samples([first, gang(1, 80), gang(2, 80, "g")], PLACES)), "which of them took how long is unknown"
    assert not list(samples([first, gang(0, 70, "g", 1), gang(1, 80)], PLACES)), "when its devices were free is unknown"


def test_the_order_of_samples_does_not_matter() -> None:
    queue = [gang(0, 50), gang(1, 80), gang(2, 100), gang(3, 130, "g")]
    assert taken(reversed(queue), PLACES) == taken(queue, PLACES) == {"f": [30, 20], "g": [30]}

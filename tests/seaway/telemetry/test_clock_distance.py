"""The distance of two clocks, from what both have seen of the same runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seaway.telemetry.session_spans import SeenTwice, ahead

SHORT = st.integers(0, 10**9)


@given(st.lists(st.tuples(SHORT, SHORT, SHORT, SHORT), min_size=1), st.integers(-(10**15), 10**15))
def test_all_that_the_controller_saw_of_a_run_lies_between_its_call_and_its_end(
    runs: list[tuple[int, int, int, int]], distance: int
) -> None:
    seen = []
    for called, there, taken, back in runs:
        submitted = called + there
        ended = submitted + taken
        seen.append(SeenTwice(called, ended + back, submitted - distance, ended - distance))
    found = ahead(seen)
    for run in seen:
        assert run.called <= run.submitted + found <= run.ended + found <= run.over
    closest = min(there + back for _, there, _, back in runs)
    assert abs(found - distance) <= closest + 1


def test_clocks_that_drifted_apart_are_taken_as_halfway_between_what_the_runs_say() -> None:
    first, later = SeenTwice(0, 10, 0, 10), SeenTwice(100, 110, 120, 130)
    assert ahead([first, later]) == -10

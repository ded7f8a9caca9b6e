"""The fidelities agree on arrays that move from slice to slice, whatever their size, and whichever hosts they reach."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim import move_scene, scene

SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene) -> None:
    exact, cohort = scene.play(drawn, "exact"), scene.play(drawn, "cohort")
    for what in exact:
        assert cohort[what] == exact[what], f"seed {drawn.seed}: {what}"


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_moves_take_the_same_time(seed: int) -> None:
    """Between disjoint and overlapping slices, of an island or two; resharded or not; several runs under way."""
    assert_equal(move_scene.draw(seed))


@pytest.mark.parametrize("seed", range(4))
def test_moves_take_the_same_time_on_64_hosts(seed: int) -> None:
    drawn = move_scene.draw(seed, hosts=64)
    drawn.acts, drawn.clients = 3, 1
    assert_equal(drawn)


@pytest.mark.full
@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_moves_agree_in_many_more_scenes(seed: int) -> None:
    assert_equal(move_scene.draw(seed))

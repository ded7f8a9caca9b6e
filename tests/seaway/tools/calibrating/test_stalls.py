"""How often and for how long threads are held up, from the differences between calls that all do the same."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from seaway.tools.calibrating.stall_costs import (
    ALL,
    NONE,
    TAIL,
    Shape,
    StallCosts,
    found_in,
    played,
    shape,
    with_stalls,
)
from sim.hardware.setups import load

from .made import calibration

MS = 1_000_000.0


def waited(stalls: StallCosts, count: int = 4000, base: float = 2 * MS, seed: int = 0) -> list[float]:
    """Times of calls with so much work, held up at random."""
    random = np.random.default_rng(seed)
    held = random.poisson(base / stalls.every, count) if stalls.every else np.zeros(count, int)
    return [base + float(random.exponential(stalls.each, one).sum()) for one in held]


def shapes() -> dict[StallCosts, Shape]:
    return {stalls: shape(waited(stalls, seed=1)) for stalls in ALL}


@pytest.mark.parametrize("stalls", [NONE, StallCosts(200_000, 2_000_000), StallCosts(400_000, 8_000_000)])
def test_the_drawn_stalls_are_recovered(stalls: StallCosts) -> None:
    found = found_in(waited(stalls), shapes(), draws=20)
    assert found is not None
    assert found.each.value == stalls.each
    assert found.every.value == stalls.every


def test_a_shape_compares_the_longer_calls_with_the_others_and_has_no_unit() -> None:
    took = [1.0] * 90 + [2.0] * 10
    assert shape(took) == pytest.approx(shape([1000 * one for one in took]))
    assert len(shape(took)) == len(TAIL)
    assert shape(took)[0] == 1.0
    assert shape(took)[-1] == 2.0


def test_simulated_calls_differ_only_if_stalls_hold_them_up() -> None:
    table = tomllib.loads(calibration("timed").text())
    profile = load(table).profile
    assert profile is not None
    even = played(table, 2, 1000, profile, 30)
    assert len(even) == 30
    assert max(even) - min(even) < 0.5 * min(even)
    held = played(table, 2, 1000, with_stalls(profile, StallCosts(50_000_000, 20_000_000)), 30)
    assert max(held) > 5 * min(held)

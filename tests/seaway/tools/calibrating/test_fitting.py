"""Known costs, paid on made-up counts, are recovered; and costs that the rows cannot determine are not made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaway.tools.calibrating.fitting import FitRow, fit, half_range, line, middle

NAMES = ("message", "parcel", "step", "gang")
prices = st.lists(st.integers(1_000, 500_000), min_size=len(NAMES), max_size=len(NAMES))


def paid(costs: dict[str, float], counts: dict[str, float]) -> float:
    return sum(costs[name] * count for name, count in counts.items())


def workloads(seed: int, count: int = 40) -> list[dict[str, float]]:
    """Workloads: each cost is the largest of some of them."""
    random = np.random.default_rng(seed)
    found = []
    for at in range(count):
        counts = {name: float(random.integers(0, 20)) for name in NAMES}
        counts[NAMES[at % len(NAMES)]] += 200
        found.append(counts)
    return found


@given(prices, st.integers(0, 1000))
def test_costs_are_recovered_from_what_was_spent(values: list[int], seed: int) -> None:
    costs = dict(zip(NAMES, map(float, values), strict=True))
    found = fit([FitRow(paid(costs, counts), counts) for counts in workloads(seed)], draws=0)
    assert found.missed < 0.1
    for counts in workloads(seed + 1):
        said = sum(found.costs[name].value * count for name, count in counts.items())
        assert said == pytest.approx(paid(costs, counts), rel=0.15)


def test_costs_of_similar_size_are_recovered_to_a_few_percent() -> None:
    costs = {"message": 200_000.0, "parcel": 150_000.0, "step": 250_000.0, "gang": 180_000.0}
    found = fit([FitRow(paid(costs, counts), counts) for counts in workloads(1)])
    for name, cost in found.costs.items():
        assert cost.value == pytest.approx(costs[name], rel=0.03)
        assert cost.spread < 0.02
        assert cost.like == ()


def test_no_cost_is_negative() -> None:
    rows = [FitRow(1000.0 - at, {"calls": 1.0, "idle": float(at)}) for at in range(100)]
    assert all(cost.value >= 0 for cost in fit(rows).costs.values())


def test_a_row_with_other_influences_hardly_counts() -> None:
    costs = {"message": 200_000.0, "parcel": 150_000.0, "step": 250_000.0, "gang": 180_000.0}
    rows = [FitRow(paid(costs, counts), counts, paid(costs, counts)) for counts in workloads(3)]
    rows[0] = FitRow(10 * rows[0].spent, rows[0].counts, rows[0].usual)
    for name, cost in fit(rows).costs.items():
        assert cost.value == pytest.approx(costs[name], rel=0.05)


def test_no_rows_give_no_costs() -> None:
    assert fit([]).costs == {}
    assert fit([FitRow(0.0, {"calls": 3.0}), FitRow(5.0, {"calls": 0.0})]).costs == {}


@given(st.integers(1, 10**7), st.integers(1, 10_000))
def test_a_line_is_recovered_from_its_points(base: int, slope: int) -> None:
    points = [(float(x), base + slope * x) for x in (1, 10, 1000, 10**5, 10**7)]
    found = line(points, draws=0)
    for x, y in points:
        assert found.base + found.slope * x == pytest.approx(y, rel=0.06)


def test_median_and_spread_are_right() -> None:
    values = [float(value) for value in range(101)]
    assert middle(values).value == 50
    assert half_range(values) == 45
    assert middle(values).spread == pytest.approx(0.9)
    assert middle([7.0]) == (7.0, 0.0, ())

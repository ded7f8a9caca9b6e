"""Fits costs to counts and times: least squares without negative costs, straight lines, and their spreads.

A row says how much time was spent, and how often each cost occurred in it. Rows are weighted by relative error; rows
with far larger errors than most count less, since other work was on the machine then. If rows cannot tell some costs
apart, because these always occur in the same proportion, each gets an equal part of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Counts = Mapping[str, float]
Array = np.ndarray[Any, Any]
DRAWS = 200  # resamplings of rows, for the spread
LEAST = 0.01  # the smallest relative error assumed for a row
APART = 0.05  # part of a cost's column that other columns must not explain, or the cost is not told apart
NORMAL = 1.4826
FAR = 2.0  # times the median error: a row that errs by more counts by less
AGAIN = 4  # times that the weights are computed again
LOW, HIGH = 5, 95  # percentiles: the spread is half of the range between them


class FitRow(NamedTuple):
    """One measurement. usual: errors are relative to this, the typical time of such rows; 0: relative to `spent`."""

    spent: float
    counts: Counts
    usual: float = 0.0


class FittedCost(NamedTuple):
    """spread: half of the range from the 5th to the 95th percentile, as a fraction. like: costs with which it was
    divided evenly, because no row tells them apart."""

    value: float
    spread: float
    like: tuple[str, ...] = ()


class Fit(NamedTuple):
    """missed: root mean square of the rows' relative errors."""

    costs: dict[str, FittedCost]
    missed: float


class FittedLine(NamedTuple):
    base: float
    slope: float
    spread: float  # of the slope
    doubt: float = 0.0  # the spread of the base


def fit(rows: Sequence[FitRow], draws: int = DRAWS) -> Fit:
    """Fit a cost for each name that any row counts."""
    useful = [row for row in rows if row.spent > 0]
    names = sorted({name for row in useful for name, count in row.counts.items() if count})
    if not names:
        return Fit({}, 0.0)
    usual = np.array([row.usual or row.spent for row in useful])
    matrix = np.array([[row.counts.get(name, 0) for name in names] for row in useful]) / usual[:, None]
    spent = np.array([row.spent for row in useful]) / usual
    scale = np.sqrt((matrix**2).mean(axis=0))
    matrix = matrix / scale
    even = max(LEAST, usual_error(matrix, spent, solved(matrix, spent, LEAST)))
    found = solved(matrix, spent, even)
    random = np.random.default_rng(0)
    picks = [random.integers(0, len(useful), len(useful)) for _ in range(draws)]
    drawn = [solved(matrix[pick], spent[pick], even) for pick in picks]
    low, high = np.percentile(np.array(drawn), (LOW, HIGH), axis=0) if draws else (found, found)
    like = alike(matrix, names, max(APART, even))
    return Fit(
        {
            name: FittedCost(
                float(found[at] / scale[at]),
                float((high[at] - low[at]) / 2 / found[at]) if found[at] else 0.0,
                like.get(name, ()),
            )
            for at, name in enumerate(names)
        },
        missed_by(matrix, spent, found),
    )


def usual_error(matrix: Array, spent: Array, costs: Array) -> float:
    """The typical error of an undisturbed row: a standard deviation estimated from the median error."""
    return float(NORMAL * np.median(np.abs(matrix @ costs - spent)))


def missed_by(matrix: Array, spent: Array, costs: Array) -> float:
    return float(np.sqrt(((matrix @ costs - spent) ** 2).mean()))


def solved(matrix: Array, spent: Array, even: float) -> Array:
    """The costs, none negative, that explain the rows best; the evenest of those within `even` of each other."""
    weights = np.minimum(1, np.maximum(spent, LEAST) ** -2.0)  # rows above their usual time are more often disturbed
    found = weighed(matrix, spent, even, weights)
    for _ in range(AGAIN):
        errors = np.abs(matrix @ found - spent)
        bound = np.maximum(FAR * np.median(errors), LEAST * LEAST)
        weights = np.minimum(1, bound / np.maximum(errors, bound)) ** 2
        found = weighed(matrix, spent, even, weights)
    return found


def weighed(matrix: Array, spent: Array, even: float, weights: Array) -> Array:
    """Weighted least squares with a preference for even costs, scaled so that the preference does not shrink them."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]  # a requirement of jax's

    rows, columns = matrix.shape
    root = np.sqrt(weights)
    bound = even * np.sqrt(rows) * np.eye(columns)
    found, _ = nnls(np.vstack([matrix * root[:, None], bound]), np.concatenate([spent * root, np.zeros(columns)]))
    said = matrix @ found
    whole = float((weights * said) @ said)
    return np.asarray(found * (float((weights * said) @ spent) / whole if whole else 1.0))


def alike(matrix: Array, names: Sequence[str], apart: float) -> dict[str, tuple[str, ...]]:
    """For each column that is nearly a sum of others: the names of those."""
    found = {}
    for at, name in enumerate(names):
        others = [other for other in range(len(names)) if other != at]
        column = matrix[:, at]
        if not others:
            continue
        weights, *_ = np.linalg.lstsq(matrix[:, others], column, rcond=None)
        own = np.linalg.norm(column - matrix[:, others] @ weights) / np.linalg.norm(column)
        if own < apart:
            size = np.abs(weights) * np.linalg.norm(matrix[:, others], axis=0)
            found[name] = tuple(names[other] for other, each in zip(others, size, strict=True) if each > size.max() / 3)
    return found


def line(points: Sequence[tuple[float, float]], draws: int = DRAWS) -> FittedLine:
    """A line through (x, y) by relative errors of y, with no negative base or slope."""
    rows = [FitRow(y, {"base": 1.0, "slope": x}) for x, y in points]
    costs = fit(rows, draws).costs
    base, slope = (costs.get(name, FittedCost(0.0, 0.0)) for name in ("base", "slope"))
    return FittedLine(base.value, slope.value, slope.spread, base.spread)


def middle(values: Sequence[float]) -> FittedCost:
    """The median, with its spread as in `FittedCost`."""
    value = float(np.median(np.array(values)))
    return FittedCost(value, half_range(values) / value if value else 0.0)


def half_range(values: Sequence[float]) -> float:
    low, high = np.percentile(np.array(values), (LOW, HIGH))
    return float(high - low) / 2

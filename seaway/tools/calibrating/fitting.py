"""From counts and times to costs: least squares without negative costs, lines, and how far each may be wrong.

A row says: this much time was spent, on so many of these things. Rows count by their relative error, and those that err
far more than most (something else had the machine) by less. Of costs that the
rows cannot tell apart (they always come in the same proportion), each gets an equal part of the time: a choice that
makes less of a difference than the rows err by is made evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Counts = Mapping[str, float]
Array = np.ndarray[Any, Any]
DRAWS = 200  # of rows anew, for the spread
LEAST = 0.01  # as relative errors of rows go, none is better known than so
APART = 0.05  # of a cost's column must be its own (or more, where rows err by more), or it is not told apart
NORMAL = 1.4826
FAR = 2.0  # times the median error: a row that errs by more counts by less
AGAIN = 4  # times the weights are found anew
LOW, HIGH = 5, 95  # percentiles: the spread is half of what lies between them


class Row(NamedTuple):
    """usual: what its error is relative to: what such rows spend, if there are several; 0: what itself did."""

    spent: float
    counts: Counts
    usual: float = 0.0


class Cost(NamedTuple):
    """spread: half of what lies between the 5th and 95th percentile, as a fraction. like: with what it was divided
    evenly, because no row tells them apart."""

    value: float
    spread: float
    like: tuple[str, ...] = ()


class Fit(NamedTuple):
    """missed: root mean square of the rows' relative errors."""

    costs: dict[str, Cost]
    missed: float


class Line(NamedTuple):
    base: float
    slope: float
    spread: float  # of the slope
    doubt: float = 0.0  # the spread of the base


def fit(rows: Sequence[Row], draws: int = DRAWS) -> Fit:
    """A cost for each name that any row counts."""
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
            name: Cost(
                float(found[at] / scale[at]),
                float((high[at] - low[at]) / 2 / found[at]) if found[at] else 0.0,
                like.get(name, ()),
            )
            for at, name in enumerate(names)
        },
        missed_by(matrix, spent, found),
    )


def usual_error(matrix: Array, spent: Array, costs: Array) -> float:
    """What a row errs by, but for those that something else had a hand in: from the median, as of a normal law."""
    return float(NORMAL * np.median(np.abs(matrix @ costs - spent)))


def missed_by(matrix: Array, spent: Array, costs: Array) -> float:
    return float(np.sqrt(((matrix @ costs - spent) ** 2).mean()))


def solved(matrix: Array, spent: Array, even: float) -> Array:
    """Costs, none negative, that make each row what was spent; where that leaves a choice that is worth less than so
    much of a row, the most even ones."""
    weights = np.minimum(1, np.maximum(spent, LEAST) ** -2.0)  # more than is usual is more often wrong
    found = weighed(matrix, spent, even, weights)
    for _ in range(AGAIN):
        errors = np.abs(matrix @ found - spent)
        bound = np.maximum(FAR * np.median(errors), LEAST * LEAST)
        weights = np.minimum(1, bound / np.maximum(errors, bound)) ** 2
        found = weighed(matrix, spent, even, weights)
    return found


def weighed(matrix: Array, spent: Array, even: float, weights: Array) -> Array:
    """Evenness is not to make them smaller in all."""
    from scipy.optimize import nnls  # type: ignore[import-untyped]  # a requirement of jax's

    rows, columns = matrix.shape
    root = np.sqrt(weights)
    bound = even * np.sqrt(rows) * np.eye(columns)
    found, _ = nnls(
        np.vstack([matrix * root[:, None], bound]), np.concatenate([spent * root, np.zeros(columns)])
    )
    said = matrix @ found
    whole = float((weights * said) @ said)
    return np.asarray(found * (float((weights * said) @ spent) / whole if whole else 1.0))


def alike(matrix: Array, names: Sequence[str], apart: float) -> dict[str, tuple[str, ...]]:
    """Of each column that is nearly a sum of others: which these are."""
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
            found[name] = tuple(
                names[other] for other, each in zip(others, size, strict=True) if each > size.max() / 3
            )
    return found


def line(points: Sequence[tuple[float, float]], draws: int = DRAWS) -> Line:
    """Through (x, y), by relative errors of y; neither its base nor its slope is negative."""
    rows = [Row(y, {"base": 1.0, "slope": x}) for x, y in points]
    costs = fit(rows, draws).costs
    base, slope = (costs.get(name, Cost(0.0, 0.0)) for name in ("base", "slope"))
    return Line(base.value, slope.value, slope.spread, base.spread)


def middle(values: Sequence[float]) -> Cost:
    """The median, and its spread as above."""
    value = float(np.median(np.array(values)))
    return Cost(value, half_range(values) / value if value else 0.0)


def half_range(values: Sequence[float]) -> float:
    low, high = np.percentile(np.array(values), (LOW, HIGH))
    return float(high - low) / 2

"""Finds where a curve crosses a level: `crossing`, the end of the range above it, and `below`, the points before."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log


def crossing(x: Iterable[float], ratio: Iterable[float], least: float) -> float | None:
    """The largest x up to which the ratio is at least `least`, interpolated on logarithmic axes.

    None if the ratio is nowhere that large, or still is at the last point.
    """
    points = sorted(zip(x, ratio, strict=True))
    enough = [at for at, (_, value) in enumerate(points) if value >= least]
    if not enough or enough[-1] == len(points) - 1:
        return None
    (at, value), (after, then) = points[enough[-1] : enough[-1] + 2]
    share = (log(value) - log(least)) / (log(value) - log(then))
    return exp(log(at) + share * (log(after) - log(at)))


def below(x: Iterable[float], ratio: Iterable[float], least: float) -> list[tuple[float, float]]:
    """The points (x, ratio) under the level that lie before the last one that reaches it."""
    points = sorted(zip(x, ratio, strict=True))
    enough = [at for at, (_, value) in enumerate(points) if value >= least]
    return [point for point in points[: enough[-1]] if point[1] < least] if enough else []

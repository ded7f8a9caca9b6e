"""What a curve says in a number: where it crosses a level."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log


def crossing(x: Iterable[float], ratio: Iterable[float], least: float) -> float | None:
    """Up to which x the ratio is at least so much, read off between the points on logarithmic axes. None: it nowhere
    is, or it still is at the last point."""
    points = sorted(zip(x, ratio, strict=True))
    enough = [at for at, (_, value) in enumerate(points) if value >= least]
    if not enough or enough[-1] == len(points) - 1:
        return None
    (at, value), (after, then) = points[enough[-1] : enough[-1] + 2]
    share = (log(value) - log(least)) / (log(value) - log(then))
    return exp(log(at) + share * (log(after) - log(at)))

"""How far a client's clock is ahead of the controller's, from what both have seen of the same runs.

A client calls before the controller hears of the run, and hears of the end after the controller. So each run bounds
the distance of the two clocks from both sides, and many runs bound it closely, without a message. If the distance is
taken from within these bounds, all that the controller saw of a run lies between the client's call and its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class SeenTwice(NamedTuple):
    """One run, in nanoseconds by the client's clock and by the controller's."""

    called: int
    over: int
    submitted: int
    ended: int


def ahead(runs: Iterable[SeenTwice]) -> int:
    """Nanoseconds to add to a time of the controller's. At least one run is needed.

    If the bounds of the runs exclude each other, as clocks that drift apart may have it: the middle between them.
    """
    seen = list(runs)
    low = max(run.called - run.submitted for run in seen)
    high = min(run.over - run.ended for run in seen)
    return (low + high) // 2

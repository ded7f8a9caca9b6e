"""Streams of calls, each with the last one's result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any


def stream(work: Callable[[Any], Any], first: Any, ahead: int, turns: Iterable[object]) -> int:
    """Make a call for each turn, with `ahead` calls under way (0: all of them), and wait for the last one. Returns the
    number of calls."""
    x, calls = first, 0
    under_way: deque[Any] = deque()
    for _ in turns:
        x = work(x)
        calls += 1
        if ahead:
            under_way.append(x)
            if len(under_way) >= ahead:
                under_way.popleft().block_until_ready()
    x.block_until_ready()
    return calls

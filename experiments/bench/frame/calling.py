"""Streams of calls, each with the last one's result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


def stream(work: Callable[[Any], Any], first: Any, ahead: int, over: Callable[[int], bool]) -> int:
    """Call until `over(calls so far)`, with `ahead` calls under way (0: all of them), and wait for the last one.
    Returns the number of calls."""
    x, calls = first, 0
    under_way: deque[Any] = deque()
    while not over(calls):
        x = work(x)
        calls += 1
        if ahead:
            under_way.append(x)
            if len(under_way) >= ahead:
                under_way.popleft().block_until_ready()
    x.block_until_ready()
    return calls

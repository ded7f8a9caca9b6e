"""Simulated time: stock SimPy, integer nanoseconds, and calls at a time.

Whatever could depend on which of two things at the same nanosecond comes first is put in a canonical order by
its owner, who looks at it `LATE`: after all else of that nanosecond. So two formulations of one system agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

NORMAL, LATE = 1, 2
NEVER = float("inf")  # what SimPy says where nothing is under way


class Call:
    """All that SimPy looks at of an event when its time has come. Nobody waits for it, so it needs nothing else."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, call: Callable[[Any], object]) -> None:
        self.callbacks = (call,)


class Clock:
    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.step = self.env.step

    @property
    def now(self) -> int:
        return self.env._now  # type: ignore[return-value]  # SimPy's types know only float

    def at(self, when: int, call: Callable[..., object], *args: Any, priority: int = NORMAL) -> None:
        env, event = self.env, Call(lambda _: call(*args))
        env.schedule(event, priority, when - env._now)  # type: ignore[arg-type]  # any integer will do

    def next_time(self) -> int | None:
        """When the next thing happens; None if nothing is under way."""
        at = self.env.peek()
        return None if at == NEVER else at  # type: ignore[return-value]

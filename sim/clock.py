"""Simulated time: stock SimPy, integer nanoseconds, and calls at a time.

Whatever could depend on which of two things at the same nanosecond comes first is put in a canonical order by
its owner, who looks at it `LATE`: after all else of that nanosecond. So two formulations of one system agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

NORMAL, LATE = 1, 2


class Clock:
    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)

    @property
    def now(self) -> int:
        return self.env.now  # type: ignore[return-value]  # SimPy's types know only float

    def at(self, when: int, call: Callable[..., object], *args: Any, priority: int = NORMAL) -> None:
        event = self.env.event()
        event._ok, event._value = True, None
        event.callbacks = [lambda _: call(*args)]  # type: ignore[list-item]  # SimPy drops what it returns
        self.env.schedule(event, priority, when - self.now)  # type: ignore[arg-type]  # any integer will do

    def step(self) -> None:
        self.env.step()

    def next_time(self) -> int | None:
        """When the next thing happens; None if nothing is under way."""
        at = self.env.peek()
        return None if at == float("inf") else at  # type: ignore[return-value]

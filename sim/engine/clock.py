"""Simulated time: a SimPy environment that counts integer nanoseconds and calls functions at a given time.

Some results could depend on which of two events of the same nanosecond is handled first. The owner of such events
collects them and handles them at priority `LATE`, after all other events of that nanosecond, in a canonical order.
So the exact simulation and the cohort simulation give equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

NORMAL, LATE = 1, 2
NEVER = float("inf")  # what SimPy's `peek` returns when nothing is scheduled


class BareEvent:
    """A minimal SimPy event that only has a callback. No process waits for it, so it needs no other attribute."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, call: Callable[[Any], object]) -> None:
        self.callbacks = (call,)


class SimClock:
    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.step = self.env.step

    @property
    def now(self) -> int:
        return self.env._now  # type: ignore[return-value]  # SimPy's types know only float

    def at(self, when: int, call: Callable[..., object], *args: Any, priority: int = NORMAL) -> None:
        env, event = self.env, BareEvent(lambda _: call(*args))
        # SimPy accepts any integer as a delay
        env.schedule(event, priority, when - env._now)  # type: ignore[arg-type]

    def next_time(self) -> int | None:
        """The time of the next event; None if nothing is scheduled."""
        at = self.env.peek()
        return None if at == NEVER else at  # type: ignore[return-value]

"""Whether anything can still happen in a simulation, once only timers have happened for long.

Devices that work, links that carry and timers that run have a time in the clock at which they end. When it has been
quiet for `QUIET`, what is in the clock by then is still waited for. After that, only long waits of the user's own
processes count: others may be loops that look again and again whether something has happened.
Neighbours: `clock`; `sim.simulation`, which knows when something other than a timer last happened.
"""

from __future__ import annotations

from .clock import SimClock

QUIET = 2_000 * 1_000_000_000  # nanoseconds of simulated time


class StuckWatch:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._since = -1  # the quiet time that was looked into last began then,
        self._until = 0  # and what was to come by then lasts until then

    def until(self, seen: int) -> int:
        """When to look whether all is stuck. `seen`: when something other than a timer last happened."""
        return max(seen + QUIET, self._until if self._since == seen else 0)

    def is_stuck(self, seen: int) -> bool:
        now = self._clock.now
        if now <= self.until(seen):
            return False
        again = self._since == seen
        until = self._clock.last_time(of_users=again)
        if until - now <= (QUIET if again else 0):
            return True
        self._since, self._until = seen, until
        return False

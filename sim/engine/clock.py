"""Simulated time: a SimPy environment that counts integer nanoseconds and calls functions at a given time.

Some results could depend on which of two events of the same nanosecond is handled first. The owner of such events
collects them and handles them at priority `LATE`, after all other events of that nanosecond, in a canonical order.
So the exact simulation and the cohort simulation give equal results. What those may add to is handled at `LATER`.
"""

from collections.abc import Callable, Sized
from heapq import heapify, heappop, heappush
from typing import Any

import simpy
from simpy.core import EmptySchedule

from core.model import SeawayError

# --- errors -----------------------------------------------------------------------------------------------------------


class Stuck(SeawayError):
    """The condition that `run` waits for cannot become true: only timers are still scheduled."""


class Unannounced(SeawayError):
    """A fault was injected into an island that is simulated as a cohort, and had not been announced at the start."""


NORMAL, LATE, LATER = 1, 2, 3
FIRST = -2  # before all others of its nanosecond


class SimClock(simpy.Environment):
    """The environment. Calls need none of what SimPy's events have: no value, and no process waits for them. So a call
    stands in the queue by itself; and one of SimPy's events does as a call that processes it."""

    __slots__ = ("now",)  # SimPy's is a property, and this is asked for some 70 times for each gang
    now: int

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self.now = 0
        self._entries: list[Any] = self._queue

    def at(self, when: int, call: Callable[..., object], *args: Any, priority: int = NORMAL) -> None:
        heappush(self._entries, (when, priority, next(self._eid), args, call))

    def schedule(self, event: simpy.Event, priority: Any = NORMAL, delay: Any = 0) -> None:
        """SimPy puts its events here."""
        heappush(self._entries, (self._now + delay, priority, next(self._eid), (event,), self._process_event))

    def _process_event(self, event: simpy.Event) -> None:
        """Lets SimPy find it in front, as in a queue of its own."""
        heappush(self._entries, (self._now, FIRST, 0, event))
        super().step()

    def step(self) -> None:
        """Processes the next event or call."""
        if not self._entries:
            raise EmptySchedule
        self.now, _, _, args, call = heappop(self._entries)
        self._now = self.now
        call(*args)

    def steps(self, until: Sized, latest: int) -> None:
        """Processes what happens until a collection is not empty, or something is later than this time."""
        entries = self._entries
        while not until and self.now <= latest:
            if not entries:
                raise EmptySchedule
            self.now, _, _, args, call = heappop(entries)
            self._now = self.now
            call(*args)

    def run_to(self, when: int) -> None:
        """Processes all that happens up to this time."""
        entries = self._entries
        while entries and entries[0][0] <= when:
            self.now, _, _, args, call = heappop(entries)
            self._now = self.now
            call(*args)
        self.now = self._now = max(self.now, when)

    def replay(self, since: int, play: Callable[[], None]) -> None:
        """Sets the clock back to `since` and calls `play`; then processes what this leads to before now. What it leads
        to from now on stays to come, with all that was to come before."""
        now, entries = self.now, self._entries
        others = entries.copy()
        entries.clear()
        self.now = self._now = since
        play()
        while entries and entries[0][0] < now:
            self.step()
        self.now = self._now = now
        entries += others
        heapify(entries)

    def drop(self, unwanted: Callable[[Any, Any], bool]) -> None:
        """Drops calls that were to come. `unwanted` gets what is called, and with which arguments."""
        self._entries[:] = [entry for entry in self._entries if not unwanted(entry[4], entry[3])]
        heapify(self._entries)

    def calls(self) -> list[tuple[Callable[..., object], tuple[Any, ...]]]:
        """The calls that are to come, with their arguments, in no order; none of SimPy's events."""
        return [(entry[4], entry[3]) for entry in self._entries if entry[4] != self._process_event]

    def last_time(self, of_users: bool = False) -> int:
        """The time of the last thing that is to come by now; `of_users`: of SimPy's events, for which processes of the
        user's wait. 0: there is none."""
        process = self._process_event
        return max((entry[0] for entry in self._entries if not of_users or entry[4] == process), default=0)

    def next_time(self) -> int | None:
        """The time of the next event; None if nothing is scheduled."""
        return self._entries[0][0] if self._entries else None


# --- whether anything can still happen --------------------------------------------------------------------------------

# Devices that work, links that carry and timers that run have a time in the clock at which they end. When it has been
# quiet for `QUIET`, what is in the clock by then is still waited for. After that, only long waits of the user's own
# processes count: others may be loops that look again and again whether something has happened.

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

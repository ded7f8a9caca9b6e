"""Simulated time: a SimPy environment that counts integer nanoseconds and calls functions at a given time.

Some results could depend on which of two events of the same nanosecond is handled first. The owner of such events
collects them and handles them at priority `LATE`, after all other events of that nanosecond, in a canonical order.
So the exact simulation and the cohort simulation give equal results. What those may add to is handled at `LATER`.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import simpy

NORMAL, LATE, LATER = 1, 2, 3


class SimClock(simpy.Environment):
    """The environment. Calls need none of what SimPy's events have: no value, and no process waits for them. So a call
    stands in the queue by itself, in an entry that is longer by one than those of events."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._entries: list[Any] = self._queue

    if TYPE_CHECKING:  # SimPy's types know only float

        @property
        def now(self) -> int: ...
    else:
        now = property(attrgetter("_now"))  # in C, since it is asked for some 70 times for each gang

    def at(self, when: int, call: Callable[..., object], *args: Any, priority: int = NORMAL) -> None:
        heappush(self._entries, (when, priority, next(self._eid), args, call))

    def step(self) -> None:
        """Processes the next event or call."""
        entries = self._entries
        if not entries or len(entries[0]) == 4:
            super().step()
            return
        self._now, _, _, args, call = heappop(entries)
        call(*args)

    def steps(self, until: Sized, latest: int) -> None:
        """Processes what happens until a collection is not empty, or something is later than this time."""
        entries = self._entries
        while not until and self._now <= latest:
            if not entries or len(entries[0]) == 4:
                super().step()
                continue
            self._now, _, _, args, call = heappop(entries)
            call(*args)

    def run_to(self, when: int) -> None:
        """Processes all that happens up to this time."""
        entries = self._entries
        while entries and entries[0][0] <= when:
            if len(entries[0]) == 4:
                super().step()
                continue
            self._now, _, _, args, call = heappop(entries)
            call(*args)
        self._now = max(self._now, when)

    def replay(self, since: int, play: Callable[[], None]) -> None:
        """Sets the clock back to `since` and calls `play`; then processes what this leads to before now. What it leads
        to from now on stays to come, with all that was to come before."""
        now, entries = self._now, self._entries
        others = entries.copy()
        entries.clear()
        self._now = since
        play()
        while entries and entries[0][0] < now:
            self.step()
        self._now = now
        entries += others
        heapify(entries)

    def drop(self, unwanted: Callable[[Any, Any], bool]) -> None:
        """Drops calls that were to come. `unwanted` gets what is called, and with which arguments."""
        self._entries[:] = [
            entry for entry in self._entries if len(entry) == 4 or not unwanted(entry[4], entry[3])
        ]
        heapify(self._entries)

    def calls(self) -> list[tuple[Callable[..., object], tuple[Any, ...]]]:
        """The calls that are to come, with their arguments, in no order."""
        return [(entry[4], entry[3]) for entry in self._entries if len(entry) > 4]

    def next_time(self) -> int | None:
        """The time of the next event; None if nothing is scheduled."""
        return self._entries[0][0] if self._entries else None

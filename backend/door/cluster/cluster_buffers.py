"""The buffers that a session has at core's client: what becomes of each, and which are not needed any more.

Buffers that come into being together have consecutive names and share a `BufferOutcome`. Those that were dropped are
released in one message, with the next call or a little later: a client drops the arrays of a step in several requests,
and each message is a turn of the controller. Neighbours: `cluster_arrays`,
`cluster_devices`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from core.client import Client
from core.model import Range, RangeTable, ranges

from ..session import StatusError
from .cluster_link import CallWatch, ClusterLink


def tell(waits: list[Callable[[], None]]) -> None:
    """Calls each once. They may wait again, for something else."""
    if waits:
        told = waits.copy()
        waits.clear()
        for each in told:
            each()


class BufferOutcome:
    """What becomes of a run or a put, and of its buffers, which have consecutive names. `run`: its number, 0: it is a
    put, or not submitted yet. `over`: the run has ended, at `ended_at`."""

    __slots__ = (
        "_apart", "count", "ended_at", "fault", "first", "gone", "left", "over", "readers", "ready", "run", "unnamed",
        "waits",
    )  # fmt: skip

    def __init__(self, count: int) -> None:
        self.first, self.count = 0, count  # names, as soon as there are some
        self.left = count  # names that have not been dropped or given up
        self.over = self.ready = False
        self.run, self.ended_at = 0, -1
        self.fault: StatusError | None = None  # of the run, and of all buffers that were not ready before
        self.readers = 0  # calls that have not been made, and will name some of its buffers
        self._apart: dict[int, StatusError | None] = {}  # buffers of which we have heard alone
        self.gone: list[range] = []  # buffers that were deleted or given up, as places among them
        self.waits: list[Callable[[], None]] = []
        self.unnamed: list[Callable[[], None]] = []  # told when there are names, or will never be

    def when_named(self, then: Callable[[], None]) -> None:
        if self.first or self.fault is not None:
            then()
        else:
            self.unnamed.append(then)

    def known(self, name: int) -> bool:
        return self.ready or self.fault is not None or name in self._apart

    def fault_of(self, name: int) -> StatusError | None:
        return self._apart.get(name, None if self.ready else self.fault)

    def all_known(self, at: int, count: int) -> bool:
        """Whether so many of its buffers are known, from this place on."""
        if self.ready or self.fault is not None:
            return True
        return len(self._apart) >= count and all(
            name in self._apart for name in range(self.first + at, self.first + at + count)
        )

    def first_fault(self, at: int, count: int) -> StatusError | None:
        """Of the first of these that is spoilt."""
        if not self._apart:
            return None if self.ready else self.fault
        names = range(self.first + at, self.first + at + count)
        return next((fault for name in names if (fault := self.fault_of(name)) is not None), None)

    def goes(self, at: int, count: int) -> None:
        """They are deleted, or given up."""
        self.gone.append(range(at, at + count))

    def has_gone(self, at: int) -> bool:
        return bool(self.gone) and any(at in each for each in self.gone)

    def settle(self, names: range, fault: StatusError | None) -> None:
        """The controller has told of these buffers. One that was ready may be lost later."""
        if fault is None and len(names) == self.count:
            self.ready = True
        else:
            self._apart.update(dict.fromkeys(names, fault))
        tell(self.waits)

    def end(self, fault: StatusError | None) -> None:
        """The run has ended: with success, so all its buffers are ready of which nothing else was said."""
        self.over = True
        if fault is None:
            self.ready = True
        elif self.fault is None:
            self.fault = fault
        tell(self.unnamed)
        tell(self.waits)


class SessionBuffers:
    """`later(function)`: calls it on the loop's thread, a little later, from any thread."""

    def __init__(self, link: ClusterLink, later: Callable[[Callable[[], None]], Any], watch: CallWatch | None) -> None:
        self.outcomes: RangeTable[Any] = RangeTable()  # BufferOutcomes by their first names; none is ever cut
        self.over = False  # nothing is released any more
        self._link, self._later, self._watch = link, later, watch
        self._dropped: list[int | Range] = []
        self._reading = 0  # of all outcomes, their `readers`

    def add(self, outcome: BufferOutcome, first: int) -> None:
        """These buffers have names."""
        self.outcomes.put(first, outcome)
        outcome.first = first
        if outcome.unnamed:
            tell(outcome.unnamed)

    def drop(self, name: int, count: int = 1) -> None:
        """The last reference to these buffers has gone; called in any thread."""
        if self.over:
            return
        self._dropped.append(ranges.ranged(name, count))
        if len(self._dropped) == 1:
            self._later(self._flush)

    def _flush(self) -> None:
        if self._dropped and not self.over:
            self._link.act(self.release)

    def release(self, client: Client, now: int) -> None:
        """Releases what was dropped, in a turn of core's client. What a call will name that has not been made yet, is
        released behind it."""
        names, self._dropped = self._dropped, []
        if self._reading:
            late = {name for name in names if any(each.readers for each, _ in self.outcomes.covering((name,)))}
            self._dropped += late  # others may have been dropped meanwhile
            names = [name for name in names if name not in late]
        if names:
            found = ranges.joined(names)
            self.forget(found)
            client.release(tuple(found), now)
            if self._watch is not None:
                self._watch.given_back(found)

    def read(self, outcomes: Iterable[BufferOutcome]) -> None:
        """A call that is still to be made will name some of their buffers."""
        for each in outcomes:
            each.readers += 1
            self._reading += 1

    def unread(self, outcomes: Iterable[BufferOutcome]) -> None:
        """That call has been made, or never will be."""
        for each in outcomes:
            each.readers -= 1
            self._reading -= 1
        if self._dropped:
            self._later(self._flush)

    def forget(self, names: Iterable[int | Range]) -> None:
        """The session does not have these any more."""
        for outcome, here in self.outcomes.covering(names):
            outcome.left -= len(here)
            if not outcome.left:
                self.outcomes.drop(outcome.first)
                if outcome.waits:  # nobody has any of its buffers
                    tell(outcome.waits)

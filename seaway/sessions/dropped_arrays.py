"""What core is told with the next call: arrays that a client's program has dropped, and runs that it waited for.

A finaliser may run at any moment, so it only leaves a name (`names`). So does a user who gives up an array
(`given_up`), whose finaliser comes later. The names are looked at within a call, where those that were held are
counted. They are released with a call when they are many, or while a wait lasts, since the awaited run may need their
memory. A program that waits will wait again, and a release by itself costs as much as a call. So the calls that follow
a wait take along whatever was dropped before them.
Neighbours: `array_groups`, whose finalisers leave names; `caller`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.client import Client
from core.model import Range, RangeTable, ranges

from .array_groups import HeldNames

if TYPE_CHECKING:
    from .arrays import Run

MANY = 32  # dropped arrays that the next call releases ...
MANY_BYTES = 1 << 20  # ... or this many bytes of them, whichever comes first
AFTER_WAIT = 32  # calls that release all that was dropped before them


class DroppedArrays:
    """`held`: arrays that are held yet, by their names. `given_back` is told of those that are not any more."""

    def __init__(self, given_back: Callable[[tuple[int | Range, ...]], None] | None) -> None:
        self.held: RangeTable[HeldNames] = RangeTable()
        self.names: list[int] = []  # as finalisers leave them: each once
        self.given_up: list[int] = []
        self._given_back = given_back
        self._taken: list[int | Range] = []  # those of them that were held, until they are released
        self._count = self._bytes = 0
        self._after_wait = 0  # how many of these calls are still to come

    def __bool__(self) -> bool:
        return bool(self.names or self.given_up or self._taken)

    def take(self, names: int | Range) -> list[HeldNames]:
        """Those of these names that were held, and are not from now on."""
        if self._given_back is not None:
            self._given_back((names,))
        return self.held.take(names, 1) if isinstance(names, int) else self.held.take(names.first, names.count)

    def release_with_call(self, client: Client, now: int) -> None:
        """A call is about to be made, which they may go with."""
        every = self._after_wait > 0
        if every:
            self._after_wait -= 1
        if self.names or self.given_up:
            self._look(weigh=not every)
        if every or self._count >= MANY or self._bytes >= MANY_BYTES:
            self._release(client, now)

    def release_all(self, client: Client, now: int) -> None:
        self._look(weigh=False)
        self._release(client, now)

    def waits(self) -> None:
        """The user waits; `release_all` comes first."""
        self._after_wait = AFTER_WAIT

    def _look(self, weigh: bool) -> None:
        """Takes the names that were left. Finalisers leave those of arrays that were given up before, too. `weigh`: to
        find out whether they are many."""
        one = len(self.names) == 1 and not self.given_up
        left: list[int | Range] = [self.names.pop()] if one else ranges.ascending(_emptied(self.names))
        if self.given_up:
            left += ranges.ascending(set(_emptied(self.given_up)))
        for names in left:
            held = self.take(names)
            count = sum([each.count for each in held])
            self._count += count
            if weigh and count < MANY:  # else they are enough, whatever their sizes
                self._bytes += sum([about.aval.nbytes for each in held for about in each.abouts])
            if count == (1 if isinstance(names, int) else names.count):
                self._taken.append(names)
            else:
                self._taken += [ranges.ranged(each.first, each.count) for each in held]

    def _release(self, client: Client, now: int) -> None:
        names = tuple(self._taken)
        self._taken.clear()
        self._count = self._bytes = 0
        if names and client.state not in ("closing", "closed"):  # a session that is over holds nothing
            client.release(names, now)


def _emptied(names: list[int]) -> list[int]:
    many = len(names)  # others may come meanwhile
    taken = names[:many]
    del names[:many]
    return taken


class WaitedRuns:
    """Runs for which the user waited before the next call, and when each wait could end. A recorded session needs this
    to be simulated under other settings: it shows which calls depend on which runs."""

    def __init__(self) -> None:
        self.until: dict[int, tuple[Run, int]] = {}  # by the run's number

    def note(self, run: Run | None, at: int) -> None:
        """The user needed this run's result, which was there at `at`, even if it was read later."""
        if run is not None:
            self.until[run.number] = run, max(at, self.until.get(run.number, (run, -1))[1])

    def tell(self, client: Client, ahead: int) -> None:
        """Tell core of those that have ended. `ahead`: how much later core's clock is than the session's."""
        for number, (run, at) in list(self.until.items()):
            if run.ended_at >= 0:
                del self.until[number]
                client.waited(number, ahead + max(at, run.ended_at))

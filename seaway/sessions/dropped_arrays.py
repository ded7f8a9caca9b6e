"""Arrays that a client's program has dropped: their names are gathered, and released together.

A finaliser may run at any moment, so it only leaves a name (`names`). So does a user who gives up an array
(`given_up`), whose finaliser comes later. The names are looked at within a call, where those that were held are
counted. They are released with a call when they are many, or before a wait, since the awaited run may need their
memory. A program that waits will wait again, and a release by itself costs as much as a call. So the calls that follow
a wait take along whatever was dropped before them.
Neighbours: `array_groups`, whose finalisers leave names; `caller`.
"""

from __future__ import annotations

from collections.abc import Callable

from core.client import Client
from core.model import Range, ranges

from .array_groups import HeldNames

MANY = 32  # dropped arrays that the next call releases ...
MANY_BYTES = 1 << 20  # ... or this many bytes of them, whichever comes first
AFTER_WAIT = 32  # calls that release all that was dropped before them


class DroppedArrays:
    """`no_longer_held` takes names, and returns those of them that were held, which are not held from now on."""

    def __init__(self, no_longer_held: Callable[[int | Range], list[HeldNames]]) -> None:
        self.names: list[int] = []  # as finalisers leave them: each once
        self.given_up: list[int] = []
        self._no_longer_held = no_longer_held
        self._held: list[int | Range] = []  # those of them that were held, until they are released
        self._count = self._bytes = 0
        self._after_wait = 0  # how many of these calls are still to come

    def __bool__(self) -> bool:
        return bool(self.names or self.given_up or self._held)

    def release_with_call(self, client: Client, now: int) -> None:
        """A call is about to be made, which they may go with."""
        every = self._after_wait > 0
        if every:
            self._after_wait -= 1
        if self.names or self.given_up:
            self._take(weigh=not every)
        if every or self._count >= MANY or self._bytes >= MANY_BYTES:
            self._release(client, now)

    def release_all(self, client: Client, now: int) -> None:
        self._take(weigh=False)
        self._release(client, now)

    def waits(self) -> None:
        """The user waits; `release_all` comes first."""
        self._after_wait = AFTER_WAIT

    def _take(self, weigh: bool) -> None:
        """Takes the names that were left. Finalisers leave those of arrays that were given up before, too. `weigh`: to
        find out whether they are many."""
        one = len(self.names) == 1 and not self.given_up
        taken: list[int | Range] = [self.names.pop()] if one else ranges.ascending(_emptied(self.names))
        if self.given_up:
            taken += ranges.ascending(set(_emptied(self.given_up)))
        for names in taken:
            held = self._no_longer_held(names)
            count = sum([each.count for each in held])
            self._count += count
            if weigh and count < MANY:  # else they are enough, whatever their sizes
                self._bytes += sum([each.nbytes() for each in held])
            if count == (1 if isinstance(names, int) else names.count):
                self._held.append(names)
            else:
                self._held += [ranges.ranged(each.first, each.count) for each in held]

    def _release(self, client: Client, now: int) -> None:
        names = tuple(self._held)
        self._held.clear()
        self._count = self._bytes = 0
        if names and client.state not in ("closing", "closed"):  # a session that is over holds nothing
            client.release(names, now)


def _emptied(names: list[int]) -> list[int]:
    many = len(names)  # others may come meanwhile
    taken = names[:many]
    del names[:many]
    return taken

"""Arrays that a client's program has dropped: their names are gathered, and released together.

A finaliser may run at any moment, so it only leaves a name (`names`). So does a user who gives up an array
(`given_up`), whose finaliser comes later. The names are looked at within a call, where those that were held are
counted; they are released when they are many, or before a wait, since the awaited run may need their memory.
Neighbours: `array_groups`, whose finalisers leave names; `caller`.
"""

from __future__ import annotations

from collections.abc import Callable

from core.client import Client
from core.model import Range, ranges

from .array_groups import HeldNames

MANY = 32  # dropped arrays that the next call releases ...
MANY_BYTES = 1 << 20  # ... or this many bytes of them, whichever comes first


class DroppedArrays:
    """`no_longer_held` takes names, and returns those of them that were held, which are not held from now on."""

    def __init__(self, no_longer_held: Callable[[int | Range], list[HeldNames]]) -> None:
        self.names: list[int] = []  # as finalisers leave them: each once
        self.given_up: list[int] = []
        self._no_longer_held = no_longer_held
        self._held: list[int | Range] = []  # those of them that were held, until they are released
        self._count = self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.names or self.given_up or self._held)

    def release_many(self, client: Client, now: int) -> None:
        """Releases them if they are many."""
        if self.names or self.given_up:
            self._take()
            if self._count >= MANY or self._bytes >= MANY_BYTES:
                self._release(client, now)

    def release_all(self, client: Client, now: int) -> None:
        self._take()
        self._release(client, now)

    def _take(self) -> None:
        """Takes the names that were left. Finalisers leave those of arrays that were given up before, too."""
        taken = ranges.ascending(_emptied(self.names))
        if self.given_up:
            taken += ranges.ascending(set(_emptied(self.given_up)))
        for names in taken:
            held = self._no_longer_held(names)
            count = sum([each.count for each in held])
            self._count += count
            if count < MANY:  # else they are enough, whatever their sizes
                self._bytes += sum([each.nbytes() for each in held])
            if count == ranges.number((names,)):
                self._held.append(names)
            else:
                self._held += [ranges.ranged(each.first, each.count) for each in held]

    def _release(self, client: Client, now: int) -> None:
        names = tuple(self._held)
        self._held.clear()
        self._count = self._bytes = 0
        client.release(names, now)


def _emptied(names: list[int]) -> list[int]:
    many = len(names)  # others may come meanwhile
    taken = names[:many]
    del names[:many]
    return taken

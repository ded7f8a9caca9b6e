"""Processes that wanted to be hosts here and were not taken: the last of them by name, each until it is taken.

Neighbours: the controller is told of them by its driver (`HostRefused`, `HostTaken`); `resources` names them to those
who wait for hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

KEPT = 20
LONGEST = 500  # characters of a name or a reason: both come from a process that we do not know


class Refusal(NamedTuple):
    name: str
    island: int  # -1: any would have done, or nobody knows
    reason: str
    at: int  # the last time


class Refusals:
    def __init__(self) -> None:
        self._by_name: dict[str, Refusal] = {}  # the latest last

    def refused(self, name: str, island: int, reason: str, now: int) -> bool:
        """True: nobody knew that yet."""
        name, reason = _short(name), _short(reason)
        before = self._by_name.pop(name, None)
        self._by_name[name] = Refusal(name, island, reason, now)
        if len(self._by_name) > KEPT:
            del self._by_name[next(iter(self._by_name))]
        return before is None or (before.island, before.reason) != (island, reason)

    def taken(self, name: str) -> bool:
        """True: it had been refused."""
        return self._by_name.pop(_short(name), None) is not None

    def all(self) -> list[Refusal]:
        """The latest last."""
        return list(self._by_name.values())

    def words(self, islands: Iterable[int]) -> list[str]:
        """Of those that these islands could have had."""
        wanted = {-1, *islands}
        return [
            f"agent {each.name!r} was refused: {each.reason}"
            for each in self._by_name.values() if each.island in wanted
        ]  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."

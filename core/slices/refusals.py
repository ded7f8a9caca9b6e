"""Keeps the latest processes that were refused as hosts, by name, until they are accepted.

Neighbours: the driver tells the controller of them (`HostRefused`, `HostAccepted`); `resources` names them in the
reasons of slices that wait for hosts.
"""

from collections.abc import Iterable
from typing import NamedTuple

KEPT = 20
LONGEST = 500  # characters of a name or a reason; both come from a process that is not trusted


class Refusal(NamedTuple):
    name: str
    island: int  # the island that it asked for; -1 if any, or if not known
    reason: str
    at: int  # when it was last refused


class Refusals:
    def __init__(self) -> None:
        self._by_name: dict[str, Refusal] = {}  # the latest is last

    def refused(self, name: str, island: int, reason: str, now: int) -> bool:
        """Add a refusal. Return whether it is new, or differs from the last one of this name."""
        name, reason = _short(name), _short(reason)
        before = self._by_name.pop(name, None)
        self._by_name[name] = Refusal(name, island, reason, now)
        if len(self._by_name) > KEPT:
            del self._by_name[next(iter(self._by_name))]
        return before is None or (before.island, before.reason) != (island, reason)

    def taken(self, name: str) -> bool:
        """Forget the refusal of a process that is a host now. Return whether there was one."""
        return self._by_name.pop(_short(name), None) is not None

    def all(self) -> list[Refusal]:
        """Return all refusals, the latest last."""
        return list(self._by_name.values())

    def words(self, islands: Iterable[int]) -> list[str]:
        """Return a text for each process that asked for one of these islands, or for any."""
        possible = {-1, *islands}
        return [
            f"agent {each.name!r} was refused: {each.reason}"
            for each in self._by_name.values() if each.island in possible
        ]  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."

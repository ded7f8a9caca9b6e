"""The names that a client gives to slices. A slice without one is named when the client first uses it: `slice0`, ...

Neighbours: `caller`, each of which has its own.
"""

from __future__ import annotations

from ..specs import Slice


class SliceNames:
    def __init__(self) -> None:
        self._names: dict[Slice, str] = {}

    def of(self, home: Slice) -> str:
        """The slice's name."""
        found = self._names.get(home)
        if found is None:
            found = home.name
            if not found:
                taken = set(self._names.values())
                number = len(self._names)
                while f"slice{number}" in taken:
                    number += 1
                found = f"slice{number}"
            self._names[home] = found
        return found

    def used(self, home: Slice) -> str:
        """Its name if it, or another one of that name, was used before; else nothing."""
        name = self._names.get(home, home.name)
        return name if name in self._names.values() else ""

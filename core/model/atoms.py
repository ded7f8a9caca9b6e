"""Groups devices into *atoms*, so that a counter is kept for each atom and not for each device.

Two devices are in the same atom as long as every place that has been interned holds both of them or neither.
`Atoms.intern` takes a place and returns a small key; `Atoms.of` gives the atoms of a key. A new place may cut an
atom in two. Listeners then copy the old atom's counters to the new one, which is exact because all devices of an
atom have had the same history. 2048 devices under one slice are one counter.
"""

from __future__ import annotations

from collections.abc import Callable

from . import spans
from .place import Place, device_spans
from .spans import Spans


class Atoms:
    def __init__(self) -> None:
        self.splits: list[Callable[[int, int], None]] = []  # called with (old, new): new was split off old
        self.by_atom: list[Spans] = []  # the devices of each atom
        self._keys: dict[Spans, int] = {}
        self._sets: list[Spans] = []  # by key
        self.parts: list[tuple[int, ...]] = []  # by key: its atoms; other modules may read it
        self.number = 0  # number of atoms

    def intern(self, place: Place) -> int:
        """Return the small integer that stands for the devices of this place."""
        return self.intern_devices(device_spans(place))

    def intern_devices(self, devices: Spans) -> int:
        key = self._keys.get(devices)
        if key is None:
            atoms = self._cut(devices)
            key = self._keys[devices] = len(self._sets)
            self._sets.append(devices)
            self.parts.append(atoms)
        return key

    def known(self, devices: Spans) -> int | None:
        """Return the key of exactly these devices, or None if they have not been interned."""
        return self._keys.get(devices)

    def of(self, key: int) -> tuple[int, ...]:
        return self.parts[key]

    def devices(self, atom: int) -> Spans:
        return self.by_atom[atom]

    def devices_of_key(self, key: int) -> Spans:
        return self._sets[key]

    def __len__(self) -> int:
        return self.number

    def _cut(self, devices: Spans) -> tuple[int, ...]:
        found: list[int] = []
        rest = devices
        for atom in range(len(self.by_atom)):
            inside = spans.meet(self.by_atom[atom], devices)
            if not inside:
                continue
            found.append(atom)
            rest = spans.minus(rest, inside)
            outside = spans.minus(self.by_atom[atom], inside)
            if outside:
                self._split(atom, inside, outside)
        if rest:
            found.append(self.number)
            self.by_atom.append(rest)
            self.number += 1
        return tuple(found)

    def _split(self, atom: int, inside: Spans, outside: Spans) -> None:
        """Leave `inside` to this atom, give `outside` to a new atom, and add that atom to every key with the old."""
        new = self.number
        self.number += 1
        self.by_atom[atom] = inside
        self.by_atom.append(outside)
        self.parts[:] = [(*atoms, new) if atom in atoms else atoms for atoms in self.parts]
        for listen in self.splits:
            listen(atom, new)

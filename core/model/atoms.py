"""Devices that no slice has told apart are one *atom*, so counters are kept an atom and not a device.

A place is a set of atoms; a new place that cuts an atom in two splits it, and listeners copy their counters, which
is exact because all devices of an atom have had the same history. 2048 devices under one slice are one counter.
"""

from __future__ import annotations

from collections.abc import Callable

from . import spans
from .place import Place, device_spans
from .spans import Spans


class Atoms:
    def __init__(self) -> None:
        self.splits: list[Callable[[int, int], None]] = []  # called with (old, new): new was split off old
        self._devices: list[Spans] = []  # by atom
        self._keys: dict[Spans, int] = {}
        self._sets: list[Spans] = []  # by key
        self.parts: list[tuple[int, ...]] = []  # by key: its atoms. For others to read
        self.number = 0  # of atoms

    def intern(self, place: Place) -> int:
        """A small integer that stands for the devices of this place."""
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
        """The key of these devices, if they are a place that somebody named."""
        return self._keys.get(devices)

    def of(self, key: int) -> tuple[int, ...]:
        return self.parts[key]

    def devices(self, atom: int) -> Spans:
        return self._devices[atom]

    def devices_of_key(self, key: int) -> Spans:
        return self._sets[key]

    def __len__(self) -> int:
        return self.number

    def _cut(self, devices: Spans) -> tuple[int, ...]:
        found: list[int] = []
        rest = devices
        for atom in range(len(self._devices)):
            inside = spans.meet(self._devices[atom], devices)
            if not inside:
                continue
            found.append(atom)
            rest = spans.minus(rest, inside)
            outside = spans.minus(self._devices[atom], inside)
            if outside:
                self._split(atom, inside, outside)
        if rest:
            found.append(self.number)
            self._devices.append(rest)
            self.number += 1
        return tuple(found)

    def _split(self, atom: int, inside: Spans, outside: Spans) -> None:
        """`atom` keeps what is inside; a new one takes the rest, in every place that held the old one."""
        new = self.number
        self.number += 1
        self._devices[atom] = inside
        self._devices.append(outside)
        self.parts[:] = [(*atoms, new) if atom in atoms else atoms for atoms in self.parts]
        for listen in self.splits:
            listen(atom, new)

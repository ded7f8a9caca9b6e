"""How much each account has used: device time, contents moved, runs; in all, and by the hour.

Core has no calendar: an hour is one of the driver's clock, and a day is the last 24 of them, this one included.

A gang is charged for its devices from when it had entered the order and all before it on them was over, until it was
reported over. That is device time and the way of the report. It includes the wait of a gang that entered before its
inputs had come: nobody else could have the devices then.

Neighbour: `accounts`, which keeps a `Usage` of each account. The functions that matter: `add`, `again_at`, `taken`.
"""

from __future__ import annotations

import msgspec

from ..model import Atoms, spans

S = 1_000_000_000
HOUR = 3600 * S
DAY = 24  # hours
KEPT = 31 * DAY  # hours


class Used(msgspec.Struct):
    device_time: int = 0  # nanoseconds, of all devices together
    bytes_in: int = 0  # contents that clients have put
    bytes_out: int = 0  # ... and got
    runs: int = 0  # that were submitted, and not refused for a quota

    def add(self, other: Used) -> None:
        self.device_time += other.device_time
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.runs += other.runs


class Usage:
    def __init__(self) -> None:
        self.total = Used()
        self.hours: dict[int, Used] = {}  # number of the hour -> what was used in it; the latest, in order

    def add(self, used: Used, now: int) -> None:
        hour = now // HOUR
        self.total.add(used)
        found = self.hours.get(hour)
        if found is None:
            found = self.hours[hour] = Used()
            for old in [each for each in self.hours if each <= hour - KEPT]:
                del self.hours[old]
        found.add(used)

    def since(self, hours: int, now: int) -> Used:
        """What was used in the last so many hours, this one included."""
        found = Used()
        for hour, used in self.hours.items():
            if hour > now // HOUR - hours:
                found.add(used)
        return found

    def again_at(self, limit: int, now: int) -> int:
        """When the device time of a day will be below the limit; `now` if it is."""
        left = self.since(DAY, now).device_time
        at = now
        for hour in sorted(self.hours):
            if left < limit:
                break
            if hour > now // HOUR - DAY:
                left -= self.hours[hour].device_time
                at = (hour + DAY) * HOUR
        return at


class DeviceTime:
    """For how long gangs have had their devices, which run them in order."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._over: list[int] = []  # by atom: when the last gang on it was over
        atoms.splits.append(self._split)

    def _split(self, old: int, new: int) -> None:
        self._reach(new)
        self._over[new] = self._over[old]

    def _reach(self, atom: int) -> None:
        self._over += [0] * (atom + 1 - len(self._over))

    def taken(self, place: int, entered: int, now: int) -> int:
        """A gang on this place is over: the nanoseconds of all its devices together."""
        found, over = 0, self._over
        for atom in self._atoms.parts[place]:
            if atom >= len(over):
                self._reach(atom)
            begun = over[atom] if over[atom] > entered else entered
            found += (now - begun) * spans.count(self._atoms.by_atom[atom])
            over[atom] = now
        return found

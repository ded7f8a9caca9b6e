"""How much each account has used: device time, contents moved, runs; in all, and by the hour.

Core has no calendar: an hour is one of the driver's clock, and a day is the last 24 of them, this one included.

A gang is charged for its devices from when it had entered the order and all before it on them was over, until it was
reported over: also while it waits for inputs, for nobody else can have the devices then.

Neighbour: `accounts`, which keeps a `Usage` of each account. The functions that matter: `add`, `again_at`, `taken`.
"""

from __future__ import annotations

from ..model import Atoms, spans
from ..protocol import Used

S = 1_000_000_000
HOUR = 3600 * S
DAY = 24  # hours
KEPT = 31 * DAY  # hours


class Usage:
    def __init__(self) -> None:
        self.total = Used()
        self.hours: dict[int, Used] = {}  # number of the hour -> what was used in it; the latest, in order

    def add(self, used: Used, now: int) -> None:
        hour, total = now // HOUR, self.total
        found = self.hours.get(hour)
        if found is None:
            found = self.hours[hour] = Used()
            for old in [each for each in self.hours if each <= hour - KEPT]:
                del self.hours[old]
        for each in (total, found):  # for each gang: no further calls
            each.device_time += used.device_time
            each.bytes_in += used.bytes_in
            each.bytes_out += used.bytes_out
            each.runs += used.runs

    def since(self, hours: int, now: int) -> Used:
        """What was used in the last so many hours, this one included."""
        lately = [used for hour, used in self.hours.items() if hour > now // HOUR - hours]
        return Used(*(sum(getattr(each, name) for each in lately) for name in Used.__struct_fields__))

    def again_at(self, limit: int, now: int) -> int:
        """When the device time of a day will be below the limit; `now` if it is."""
        left, at = self.since(DAY, now).device_time, now
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
        self._over: dict[int, int] = {}  # by atom: when the last gang on it was over
        atoms.splits.append(lambda old, new: self._over.update({new: self._over.get(old, 0)}))

    def taken(self, place: int, devices: int, entered: int, now: int) -> int:
        """A gang on this place, of so many devices, is over: the nanoseconds of all of them together."""
        found, over, atoms = 0, self._over, self._atoms.parts[place]
        for atom in atoms:
            begun = max(over.get(atom, 0), entered)
            found += (now - begun) * (devices if len(atoms) == 1 else spans.count(self._atoms.by_atom[atom]))
            over[atom] = now
        return found

"""How much each account has used: device time, contents moved, runs; in all, and by the hour.

Core has no calendar: an hour is one of the driver's clock, and a day is the last 24 of them, this one included.

Neighbours: `accounts`, which keeps a `Usage` of each account; `meters`, which says for how long a gang has had devices.
The functions that matter: `add`, `since`, `again_at`.
"""

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

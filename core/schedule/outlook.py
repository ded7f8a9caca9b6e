"""What a policy that reserves devices sees of its domain beside the gangs that may enter: what runs, and what waits.

Ends are expected, from the costs of gangs: a gang starts when those before it on its devices are over, and lasts as
long as it costs. One that has lasted longer than that is expected to need as much time again as it is late, so an
expected end is always to come, and is asked for again and again only at growing distances.

A policy is asked about a domain several times a turn, so `ExpectedEnds` are worked out once: they hold until a gang of
the domain ends, or a time comes at which one is late. A gang that enters is added to them.

Neighbours: `reservations` knows what runs, and keeps what was worked out; `contention` has the queues. A policy reads
this through `policy.Ready`.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..model import Atoms, Spans, spans
from .contention import Contention, Domain, PlaceQueue
from .policy import RunningGang, Ticket

LEAST = 1_000  # nanoseconds that a late gang is expected to need at least
EIGHTH = 8  # ... and at least this part of its cost


class GangInOrder(msgspec.Struct, eq=False):
    """A gang that has entered and has not ended."""

    ticket: Ticket
    number: int  # increasing, in the order of the island
    entered: int
    since: int  # it has not started before this time, because a gang before it ended only then
    starts: int = 0  # as expected: `ExpectedEnds` sets both
    ends: int = 0


class ExpectedEnds:
    """When the gangs of a domain that are in the order should start and end, as seen at one time."""

    def __init__(self, lanes: Contention, order: Iterable[GangInOrder], now: int) -> None:
        """`order`: those of the domain, in order."""
        self.order: list[GangInOrder] = []
        self.places: dict[int, int] = {}  # place -> the last end of a gang there
        self._contention = lanes
        self._now = now
        self._until = 1 << 62  # from then on, one of them is late
        self._free: dict[int, int] = {}  # place -> the last end on any of its devices
        for each in order:
            self.add(each)

    def hold(self, now: int) -> bool:
        """Whether they are the same at this time."""
        return now == self._now or self._now < now < self._until

    def add(self, gang: GangInOrder) -> None:
        """Take in the gang that is next in the order."""
        ticket, now = gang.ticket, self._now
        place = ticket.place
        starts = max(gang.since, self.last(place))
        ends = starts + ticket.cost
        if ends <= now:
            ends = now + max(now - ends, ticket.cost // EIGHTH, LEAST)
            self._until = now
        elif ends < self._until:
            self._until = ends
        gang.starts, gang.ends = starts, ends
        self.order.append(gang)
        if ends > self.places.get(place, 0):
            self.places[place] = ends
        self._free.clear()

    def last(self, place: int) -> int:
        """The last end of gangs that have a device in common with this place; 0 if there is none."""
        found = self._free.get(place)
        if found is None:
            near, ends = self._contention.known[place].near, self.places
            some = near.keys() & ends.keys() if near else ()
            found = self._free[place] = max([ends.get(place, 0), *map(ends.__getitem__, some)])
        return found


class Outlook:
    """The domain at one moment."""

    def __init__(
        self, atoms: Atoms, lanes: Contention, domain: Domain, ready: Sequence[PlaceQueue],
        expected: Callable[[], ExpectedEnds], now: int,
    ) -> None:  # fmt: skip
        """`ready`: the queues whose gangs may enter now. `expected`: works out the ends, or has them."""
        self._atoms = atoms
        self._contention = lanes
        self._domain = domain
        self._ready = {lane.key for lane in ready}
        self._work_out = expected
        self._known: ExpectedEnds | None = None
        self._now = now

    @property
    def _expected(self) -> ExpectedEnds:
        if self._known is None:
            self._known = self._work_out()
        return self._known

    def waiting(self) -> list[Ticket]:
        lanes, ready = self._domain.lanes, self._ready
        if len(lanes) == len(ready):
            return []
        return [queue[0][-1] for key, lane in lanes.items() if key not in ready for queue in lane.ripe.values()]

    def running(self) -> list[RunningGang]:
        return [RunningGang(e.ticket, e.entered, e.starts, e.ends) for e in self._expected.order]

    def free_at(self, ticket: Ticket) -> int:
        return max(self._now, (self._known or self._expected).last(ticket.place))

    def overlap(self, one: Ticket, other: Ticket) -> bool:
        return one.place == other.place or other.place in self._contention.known[one.place].near

    def devices(self, ticket: Ticket) -> Spans:
        return self._atoms.devices_of_key(ticket.place)

    def free(self) -> Spans:
        devices = self._atoms.devices_of_key
        lanes = self._domain.lanes.values()
        taken = spans.union(*(devices(lane.key) for lane in lanes if lane.flying))
        return spans.minus(spans.union(*(devices(lane.key) for lane in lanes)), taken)

    def last_end(self) -> int:
        """When all that runs in the domain should be over."""
        return max(self._expected.places.values(), default=self._now)

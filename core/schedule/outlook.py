"""What a policy that reserves devices sees of its domain beside the gangs that may enter: what runs, and what waits.

Ends are expected, from the costs of gangs: a gang starts when those before it on its devices are over, and lasts as
long as it costs. One that has lasted longer than that is expected to need as much time again as it is late, so an
expected end is always to come, and is asked for again and again only at growing distances.

Neighbours: `reservations` knows what runs; `contention` has the queues. A policy reads this through `policy.Ready`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Atoms, Spans, spans
from .contention import Contention, Domain, PlaceQueue
from .policy import RunningGang, Ticket

LEAST = 1_000  # nanoseconds that a late gang is expected to need at least
EIGHTH = 8  # ... and at least this part of its cost


class GangInOrder(msgspec.Struct, eq=False):
    """A gang that has entered and has not ended."""

    ticket: Ticket
    entered: int
    since: int  # it has not started before this time, because a gang before it ended only then


class Outlook:
    """The domain at one moment. What follows from the gangs in the order is worked out when it is first asked for."""

    def __init__(
        self, atoms: Atoms, lanes: Contention, domain: Domain, ready: Sequence[PlaceQueue],
        order: Sequence[GangInOrder], now: int,
    ) -> None:  # fmt: skip
        """`ready`: the queues whose gangs may enter now. `order`: what the island has in its order, in order."""
        self._atoms = atoms
        self._lanes = lanes
        self._domain = domain
        self._ready = {lane.key for lane in ready}
        self._order = order
        self._now = now
        self._running: list[RunningGang] | None = None
        self._ends: dict[int, int] = {}  # place -> the last expected end of a gang there

    def waiting(self) -> list[Ticket]:
        others = [lane for lane in self._domain.lanes.values() if lane.key not in self._ready]
        return [queue[0][-1] for lane in others for queue in lane.ripe.values()]

    def running(self) -> list[RunningGang]:
        if self._running is None:
            self._running = [self._expected(each) for each in self._order if self._is_here(each)]
        return list(self._running)

    def free_at(self, ticket: Ticket) -> int:
        self.running()
        return max(self._now, self._last_end(ticket.place))

    def overlap(self, one: Ticket, other: Ticket) -> bool:
        return one.place == other.place or other.place in self._lanes.get(one.place).near

    def devices(self, ticket: Ticket) -> Spans:
        return self._atoms.devices_of_key(ticket.place)

    def free(self) -> Spans:
        devices = self._atoms.devices_of_key
        lanes = self._domain.lanes.values()
        taken = spans.union(*(devices(lane.key) for lane in lanes if lane.flying))
        return spans.minus(spans.union(*(devices(lane.key) for lane in lanes)), taken)

    def last_end(self) -> int:
        """When all that runs in the domain should be over."""
        self.running()
        return max(self._ends.values(), default=self._now)

    def _is_here(self, each: GangInOrder) -> bool:
        return each.ticket.place in self._domain.lanes

    def _expected(self, each: GangInOrder) -> RunningGang:
        """Take the gangs in their order: those before it have been worked out."""
        ticket, now = each.ticket, self._now
        starts = max(each.since, self._last_end(ticket.place))
        ends = starts + ticket.cost
        if ends <= now:
            ends = now + max(now - ends, ticket.cost // EIGHTH, LEAST)
        self._ends[ticket.place] = max(ends, self._ends.get(ticket.place, 0))
        return RunningGang(ticket, each.entered, starts, ends)

    def _last_end(self, place: int) -> int:
        """The last expected end of gangs worked out so far that have a device in common with this place."""
        near, ends = self._lanes.get(place).near, self._ends
        some = [ends[key] for key in near if key in ends] if len(near) < len(ends) else [
            end for key, end in ends.items() if key in near
        ]  # fmt: skip
        return max(0, ends.get(place, 0), *some)

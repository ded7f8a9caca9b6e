"""The base of stride and round-robin: the client that has been charged least goes first.

This is start-time fair queueing. In each domain every client has a tag: the sum of its charges there. The domain has
a clock: the lowest tag of the clients that waited when a gang last entered. A client that comes with work, for the
first time or after a pause, starts at the clock if its tag is behind it, so it saves up nothing while it is idle. If
its tag is ahead of the clock it stays ahead, so a pause pays no debt. While two clients always have work waiting for
the same devices, their tags differ by at most one charge of each.

Tags belong to a domain, not to the island. So a client is charged only where it runs, and clients that do not share
devices with it, directly or through others, do not feel it. When two domains merge, their clocks are set to one time,
so each client keeps its lead or lag among the clients of its old domain.

A wide gang that must wait for *some* of its devices leaves its other devices to narrow gangs of other clients. These
take nothing from it, so they are not always charged: a gang is free if its client is ahead of the last one by `lead`
such gangs already. Otherwise the wide client would be entitled to run many gangs in a row later, and the narrow
clients would pay for a delay that a third client caused on devices which they never used.
"""

from abc import abstractmethod

import msgspec

from .base import Policy, Ready, Ticket


class FairClock(msgspec.Struct, eq=False):
    """The clock of one domain, the tag of each client, and the clients whose gangs wait ready."""

    time: int = 0
    tags: dict[int, int] = {}
    waiting: dict[int, None] = {}


class Fair(Policy):
    takes_the_only_one = True

    def __init__(self, lead: int = 4) -> None:
        self.lead = lead
        self._clocks: dict[int, FairClock] = {}

    @abstractmethod
    def charge(self, ticket: Ticket) -> int:
        """Return what the client pays for this gang; at least 1."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        entries = ready.entries()
        found = entries[0]
        if len(entries) > 1:
            clock = self._clock(ready.domain)
            time, tags = clock.time, clock.tags
            lowest = tags.get(found[-1].client, time)
            for entry in entries:
                tag = tags.get(entry[-1].client, time)
                if tag < lowest or (tag == lowest and entry < found):
                    found, lowest = entry, tag
        return found[-1]

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        clock, charge = self._clocks.get(domain) or self._clock(domain), self.charge(ticket)
        tags = clock.tags
        start = last = tags.get(ticket.client, clock.time)
        if clock.waiting:
            last = min(start, *map(tags.__getitem__, clock.waiting))
        if start - last < self.lead * charge:
            tags[ticket.client] = start + charge
        clock.time = max(clock.time, last)

    def joined(self, client: int, domain: int) -> None:
        clock = self._clocks.get(domain) or self._clock(domain)
        clock.waiting[client] = None
        clock.tags[client] = max(clock.tags.get(client, clock.time), clock.time)

    def left(self, client: int, domain: int) -> None:
        del self._clocks[domain].waiting[client]  # it has joined

    def gone(self, client: int) -> None:
        for clock in self._clocks.values():
            clock.tags.pop(client, None)

    def merged(self, domain: int, other: int) -> None:
        clock, end = self._clock(domain), self._clocks.pop(other, FairClock())
        for client, tag in end.tags.items():
            moved = tag + clock.time - end.time
            clock.tags[client] = max(clock.tags.get(client, moved), moved)
        clock.waiting.update(end.waiting)

    def split(self, domain: int, other: int) -> None:
        clock = self._clock(domain)
        self._clocks[other] = FairClock(clock.time, clock.tags.copy())

    def ended(self, domain: int) -> None:
        self._clocks.pop(domain, None)

    def _clock(self, domain: int) -> FairClock:
        clock = self._clocks.get(domain)
        if clock is None:
            clock = self._clocks[domain] = FairClock()
        return clock

"""What stride and round-robin share: whoever has been charged least, among those who contend, goes first.

This is start-time fair queueing. In each domain every client has a tag, what it has been charged there. The
domain has a clock: the lowest tag of those who waited when a gang last entered. A client that comes with
work, new or after a pause, starts at the clock if its tag is behind: idling saves up nothing. (If its tag
is ahead it stays ahead: leaving pays no debt.) While two clients are backlogged for the same devices their
tags differ by one charge each.

Tags belong to a domain, not to the island: a client is charged where it runs, and who shares no devices
with it, even through others, neither knows nor feels it. When two domains merge their clocks are set to one
time, so each client keeps the lead or lag it had among those it knew.

Not all that contend can always use what there is: a wide gang that others keep from *some* of its devices
leaves the rest of them to whoever runs there. That is nobody's loss, and so it is not charged: a gang is
free when its client is ahead of the last by `lead` such gangs already. Or the wide gang would make up for
it one day, in a row, and neighbours would pay for what a stranger, on devices that they never used, had
done to it.
"""

from __future__ import annotations

from abc import abstractmethod

from .base import Policy, Ready, Ticket


class Clock:
    """One domain: its time, what each client has been charged, and who has gangs that wait ready."""

    __slots__ = ("tags", "time", "waiting")

    def __init__(self) -> None:
        self.time = 0
        self.tags: dict[int, int] = {}
        self.waiting: dict[int, None] = {}


class Fair(Policy):
    takes_the_only_one = True

    def __init__(self, lead: int = 4) -> None:
        self.lead = lead
        self._clocks: dict[int, Clock] = {}

    @abstractmethod
    def charge(self, ticket: Ticket) -> int:
        """What the client pays for this gang; at least 1."""

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
        clock, charge = self._clock(domain), self.charge(ticket)
        tags = clock.tags
        start = last = tags.get(ticket.client, clock.time)
        if clock.waiting:
            last = min(start, *map(tags.__getitem__, clock.waiting))
        if start - last < self.lead * charge:
            tags[ticket.client] = start + charge
        clock.time = max(clock.time, last)

    def joined(self, client: int, domain: int) -> None:
        clock = self._clock(domain)
        clock.waiting[client] = None
        clock.tags[client] = max(clock.tags.get(client, clock.time), clock.time)

    def left(self, client: int, domain: int) -> None:
        del self._clock(domain).waiting[client]

    def gone(self, client: int) -> None:
        for clock in self._clocks.values():
            clock.tags.pop(client, None)

    def merged(self, domain: int, other: int) -> None:
        clock, end = self._clock(domain), self._clocks.pop(other, Clock())
        for client, tag in end.tags.items():
            moved = tag + clock.time - end.time
            clock.tags[client] = max(clock.tags.get(client, moved), moved)
        clock.waiting.update(end.waiting)

    def split(self, domain: int, other: int) -> None:
        clock = self._clock(domain)
        part = self._clocks[other] = Clock()
        part.time, part.tags = clock.time, dict(clock.tags)

    def ended(self, domain: int) -> None:
        self._clocks.pop(domain, None)

    def _clock(self, domain: int) -> Clock:
        clock = self._clocks.get(domain)
        if clock is None:
            clock = self._clocks[domain] = Clock()
        return clock

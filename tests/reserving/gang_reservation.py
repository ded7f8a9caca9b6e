"""Gang reservation: urgent gangs get their devices as soon as these are free, and keep them from step to step.

    seaway simulate examples/step.py --policy tests/reserving/gang_reservation.py:GangReservation

A gang is urgent if its client's priority is `least` or more (`s.spawn(..., priority=1)`). While it waits for room,
nothing else enters on its devices, so they drain. After it has ended, they are kept for `grace` nanoseconds more: a
client that calls step after step, and thinks in between, does not find them taken.
"""

from __future__ import annotations

from seaway.policies import Policy, Ready, Reserve, Ticket


class GangReservation(Policy):
    """Devices of urgent gangs are kept for them; other gangs go first come, first served."""

    reserves = True

    def __init__(self, least: int = 1, grace: int = 5_000_000) -> None:
        self.least = least
        self.grace = grace
        self.kept: dict[int, tuple[Ticket, int]] = {}  # client -> its last urgent gang, until when it is kept for it

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        gangs = sorted(ready.heads(), key=lambda gang: gang.age)
        urgent = [gang for gang in [*gangs, *ready.waiting()] if gang.priority >= self.least]
        first = min(urgent, key=lambda gang: gang.age, default=None)
        if first is not None and first in gangs:
            return first
        kept = [(last, until) for last, until in self.kept.values() if until > now]
        for gang in gangs:
            mine = [last for last, _ in kept if last.client != gang.client]
            mine += [first] if first is not None else []
            if not any(ready.overlap(gang, other) for other in mine):
                return gang
        whose, until = min(
            ((last.client, until) for last, until in kept), key=lambda each: each[1], default=(None, None)
        )
        return Reserve(first, until, whose)

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        self.kept.pop(ticket.client, None)

    def finished(self, ticket: Ticket, domain: int, now: int) -> None:
        if ticket.priority >= self.least:
            self.kept[ticket.client] = ticket, now + self.grace

    def gone(self, client: int) -> None:
        self.kept.pop(client, None)

"""Least attained service: the client that has had the least device time goes first.

    seaway simulate examples/step.py --policy examples/policies/least_attained.py:LeastAttained

Nobody needs to know how long a client will go on: one that turns out to be short is served at once, and one that has
had much waits. Served by gang and not by the nanosecond, clients of equal service would take turns. As in Tiresias (Gu
et al. 2019), service counts in levels, each twice as wide as the one below, and within a level the older run goes
first, so that clients of one level do not all end late.
"""

from __future__ import annotations

from seaway.policies import Policy, Ready, Ticket


class LeastAttained(Policy):
    """The client on the lowest level of service goes first; on one level, the oldest run."""

    def __init__(self, quantum: int = 1_000_000_000) -> None:
        self.quantum = quantum  # device nanoseconds on the lowest level; 0: no levels, service alone counts
        self.attained: dict[int, int] = {}  # client -> device nanoseconds

    def pick(self, ready: Ready, now: int) -> Ticket:
        return min(ready.heads(), key=lambda gang: (self.level(gang.client), gang.age))

    def level(self, client: int) -> int:
        attained = self.attained.get(client, 0)
        return (attained // self.quantum).bit_length() if self.quantum else attained

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        self.attained[ticket.client] = self.attained.get(ticket.client, 0) + ticket.cost * ticket.devices

    def gone(self, client: int) -> None:
        self.attained.pop(client, None)

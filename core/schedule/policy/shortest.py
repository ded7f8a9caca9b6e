"""Shortest job first, with a bound: the gang that costs least goes first, until another has waited too
long.

A gang is passed by shorter ones only if they came within `stretch` times the difference of their costs
after it. So one that costs c waits for what came before it and for what comes in the `stretch * c` after
it, and for nothing else: nobody starves, and no gang is slowed down by newcomers much more than `stretch`
times. `stretch=0` is fifo by gangs.
"""

from __future__ import annotations

from .base import Policy, Ready, Ticket


class Shortest(Policy):
    takes_the_only_one = True

    def __init__(self, stretch: int = 100) -> None:
        self.stretch = stretch

    def rank(self, ticket: Ticket) -> int:
        return ticket.since + self.stretch * ticket.cost

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

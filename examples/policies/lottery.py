"""Lottery: each gang's turn is drawn, and a client has as many tickets in the draw as its weight says.

    seaway simulate examples/step.py --policy examples/policies/lottery.py:Lottery

Shares follow weights in the long run (Waldspurger and Weihl 1994): of n draws among clients that always have work, a
client of share p wins n p, give or take a few times the square root of n p (1 - p). The generator has a seed, so a run
repeats exactly. The number for the next draw is made when a gang enters, since `pick` must change nothing. No gang
waits for ever, but there is no bound on how long one may wait, above all one that needs many devices at once.
"""

from __future__ import annotations

import random

from seaway.policies import Policy, Ready, Ticket


class Lottery(Policy):
    """The client whose gang goes next is drawn, in proportion to the weights."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.drawn = self.chance.random()

    def pick(self, ready: Ready, now: int) -> Ticket:
        gangs = [ready.oldest(client) for client in sorted(ready.clients())]
        left = self.drawn * sum(gang.weight for gang in gangs)
        for gang in gangs:
            left -= gang.weight
            if left < 0:
                return gang
        return gangs[-1]

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        self.drawn = self.chance.random()

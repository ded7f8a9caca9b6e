"""EASY backfill: the oldest gang has a reservation, and others go before it only if they do not delay it.

    seaway simulate examples/step.py --policy tests/reserving/backfill.py:EasyBackfill

Without backfill, devices that the oldest gang needs stand idle until it has all of them. EASY (Lifka 1995) lets a
younger gang use them meanwhile, if it will be over when the oldest can start. This rests on costs: if gangs take as
long as they cost, the oldest starts no later than was expected when it became the oldest.
"""

from __future__ import annotations

from seaway.policies import Policy, Ready, Reserve, Ticket


class EasyBackfill(Policy):
    """The oldest gang goes first. Younger ones go before it where they do not delay it."""

    reserves = True

    def __init__(self, lead: int = 0) -> None:
        self.lead = lead  # nanoseconds before its devices are free, the oldest may be told to its hosts

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        gangs = sorted(ready.heads(), key=lambda gang: gang.age)
        oldest = min([*gangs, *ready.waiting()], key=lambda gang: gang.age)
        start = ready.free_at(oldest)
        if gangs[0] is oldest and start <= now + self.lead:
            return oldest
        for gang in gangs:
            if gang is not oldest and (not ready.overlap(gang, oldest) or ready.free_at(gang) + gang.cost <= start):
                return gang
        return Reserve(oldest, until=start - self.lead if start - self.lead > now else None)

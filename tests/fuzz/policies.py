"""Policies that a user might write: one that works, and one that sometimes raises or picks wrongly."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from core.schedule.policy import Policy, Ready, Ticket, named


class Newest(Policy):
    """Last in, first out, in ten lines."""

    def pick(self, ready: Ready, now: int) -> Ticket:
        return max(ready.heads(), key=lambda ticket: ticket.number)


class Faulty(Policy):
    """Sometimes raises, and sometimes picks a gang that is not ready."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.old: Ticket | None = None

    def pick(self, ready: Ready, now: int) -> Ticket:
        draw = self.rng.random()
        if draw < 0.02:
            raise ZeroDivisionError("of one's own making")
        if draw < 0.04 and self.old is not None:
            return self.old
        self.old = self.rng.choice(list(ready))
        return self.old

    def rank(self, ticket: Ticket) -> int:
        if self.rng.random() < 0.01:
            raise KeyError("rank")
        return self.rng.randrange(3)


def maker(text: str, rng: Random) -> Callable[[], Policy]:
    if text == "user":
        return Newest
    if text == "faulty":
        return lambda: Faulty(rng)
    return lambda: named(text)

"""Strict priority with ageing: the highest goes first, and waiting counts as priority.

Each `age` nanoseconds of waiting count as one level. So a gang of priority p is passed by newcomers of
priority q only in its first (q - p) * age of waiting, and nobody starves. Whom that offends says `age=0`:
no ageing at all, and then the lowest do starve. Waiting is counted from when the *gang* could first have
entered: a run that has been going for a week is not a week more urgent.
"""

from __future__ import annotations

from .base import Policy, Ready, Ticket


class Priority(Policy):
    takes_the_only_one = True

    def __init__(self, age: int = 1_000_000_000) -> None:
        self.age = age

    def rank(self, ticket: Ticket) -> int:
        """Orders as `priority * age + (now - since)` does, highest first; and does not change with time."""
        return ticket.since - ticket.priority * self.age if self.age else -ticket.priority

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

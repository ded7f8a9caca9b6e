"""Earliest deadline first; whoever has none goes last, in order of arrival.

A deadline is its run's, and a promise of nobody: one that has passed still goes before later ones. Runs
without one starve under a steady load of runs that have one, and that is what was asked for.
"""

from __future__ import annotations

from .base import Policy, Ready, Ticket

NONE = 1 << 62  # nanoseconds: after any deadline that is meant


class Deadline(Policy):
    takes_the_only_one = True

    def rank(self, ticket: Ticket) -> int:
        return ticket.deadline or NONE

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

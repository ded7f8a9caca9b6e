"""Earliest deadline first. Runs without a deadline go last, in order of arrival.

A deadline belongs to a run. It is not guaranteed: a run whose deadline has passed still goes before runs with later
ones. Runs without a deadline starve under a steady load of runs that have one. That is intended.
"""

from .base import Policy, Ready, Ticket

NONE = 1 << 62  # nanoseconds; later than any real deadline


class Deadline(Policy):
    """The run that is due first goes first. Runs without a deadline go last."""

    takes_the_only_one = True

    def rank(self, ticket: Ticket) -> int:
        return ticket.deadline or NONE

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

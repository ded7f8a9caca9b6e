"""First come, first served: the oldest run goes first, with its steps as they were traced.

This is what the paper describes, and what replaces a user's policy that fails. A run waits only for runs that came
before it, so none starves. A client that submits more than others gets more than others.
"""

from .base import Policy, Ready, Ticket


class Fifo(Policy):
    """The run that came first goes first."""

    takes_the_only_one = True

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

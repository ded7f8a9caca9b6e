"""First come, first served: the oldest run goes first, with its steps as they were traced.

What the paper's text describes, and what takes over when a user's policy fails. A run waits for the work of
those that came before it and for nothing else, so nobody starves; a client that submits most gets most.
"""

from __future__ import annotations

from .base import Policy, Ready, Ticket


class Fifo(Policy):
    takes_the_only_one = True

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

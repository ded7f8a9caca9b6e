"""Strict priority with ageing: the highest priority goes first, and waiting raises it.

Each `age` nanoseconds of waiting count as one level. So newcomers of priority q pass a gang of priority p only in its
first (q - p) * age of waiting, and none starves. With `age=0` there is no ageing, and gangs of low priority may starve.
Waiting is counted from the time when the *gang* could first have entered, so a run of a week's length does not become
more urgent with each gang.

Slices that wait for devices go by priority, too, and take devices of those of a lower one, unless `preempt` is 0.
"""

from .base import Policy, Ready, Ticket
from .slice_use import SliceUse


class Priority(Policy):
    """The highest priority goes first. Each `age` nanoseconds of waiting count as one level; 0: waiting does not."""

    takes_the_only_one = True

    def __init__(self, age: int = 1_000_000_000, preempt: int = 1) -> None:
        self.age, self.preempts = age, bool(preempt)

    def rank(self, ticket: Ticket) -> int:
        """Return a rank that orders as `priority * age + (now - since)` does, highest first, for every `now`."""
        return ticket.since - ticket.priority * self.age if self.age else -ticket.priority

    def slice_rank(self, wanted: SliceUse) -> int:
        return -wanted.priority

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

"""Shortest job first, with a bound: the gang that costs least goes first, unless another has waited too long.

A shorter gang passes another only if it comes at most `stretch` times the difference of their costs later. So a gang
of cost c waits only for gangs that came before it, or in the `stretch * c` after it. None starves, and newcomers slow
a gang down by not much more than `stretch` times. `stretch=0` is first come, first served, for gangs instead of runs.

Slices that wait for devices go by the time for which they are expected to need them; others go last.
"""

from .base import Policy, Ready, Ticket
from .slice_use import NEVER, SliceUse


class Shortest(Policy):
    """The cheapest gang goes first. `stretch` bounds how far behind it others fall."""

    takes_the_only_one = True

    def __init__(self, stretch: int = 100) -> None:
        self.stretch = stretch

    def rank(self, ticket: Ticket) -> int:
        return ticket.since + self.stretch * ticket.cost

    def slice_rank(self, wanted: SliceUse) -> int:
        return max(wanted.expected.values(), default=NEVER)

    def pick(self, ready: Ready, now: int) -> Ticket:
        return ready.best()

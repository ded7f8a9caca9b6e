"""Proportional share: clients that contend for the same devices get device-seconds in proportion to their weights.

A client is charged for a gang its expected cost times its devices, divided by the client's weight (see `fair`). Take
two clients i and j that always have work waiting for the same devices. Their shares S, divided by their weights w,
never differ by more than one largest gang L of each: |S_i/w_i - S_j/w_j| <= L/w_i + L/w_j, counted when gangs enter
the order. Counted when gangs finish, with d gangs in flight, the bound is (d + 1) times that. Costs are those that the
plan states, so a client that understates them gets more.
"""

from .base import Ticket
from .fair import Fair

SCALE = 1 << 16  # keeps the rounding error of dividing by a weight small


class Stride(Fair):
    """The client that has had the least device time for its weight goes first."""

    def charge(self, ticket: Ticket) -> int:
        return ticket.cost * ticket.devices * SCALE // max(1, ticket.weight) + 1

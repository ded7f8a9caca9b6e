"""Proportional share: clients that contend for the same devices get device-seconds in proportion to their
weights.

A gang is charged its expected cost times its devices over its client's weight (see `fair` for the rest).
For any two clients that are backlogged for the same devices, what they have got, over their weights, never
differs by more than one largest gang of each: |S_i/w_i - S_j/w_j| <= L/w_i + L/w_j for what has entered the
order, and (d + 1) times that for what has finished, with d gangs in flight. Costs are what the plan
expects; who understates them gets more.
"""

from __future__ import annotations

from .base import Ticket
from .fair import Fair

SCALE = 1 << 16  # so that dividing by a weight loses nothing that matters


class Stride(Fair):
    def charge(self, ticket: Ticket) -> int:
        return ticket.cost * ticket.devices * SCALE // max(1, ticket.weight) + 1

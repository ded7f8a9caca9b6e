"""Clients take turns: one gang each, whatever it costs and whatever their weights.

A turn is a charge of 1 (see `fair`): whoever has had fewest turns goes first, and a newcomer joins the
round that is being played. Nobody starves; a client whose gangs are long gets most of the time.
"""

from __future__ import annotations

from .base import Ticket
from .fair import Fair


class RoundRobin(Fair):
    def charge(self, ticket: Ticket) -> int:
        return 1

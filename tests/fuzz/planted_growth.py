"""Planted bugs of clusters that grow."""

from __future__ import annotations

from core.controller.clients import Clients
from core.controller.membership import Membership
from core.slices.inventory import Inventory

from .draw import GROWING
from .planting import Patch, bug, nothing


@bug("hosts are not told", "hosts that are there do not learn which devices new hosts have", first=GROWING)
def _(put: Patch) -> None:
    put(Membership, "grown", nothing)


@bug("clients are not told", "clients do not learn which devices new hosts have", first=GROWING)
def _(put: Patch) -> None:
    put(Clients, "grown", nothing)


@bug("anew", "an island that grows forgets which of its hosts are up", first=GROWING)
def _(put: Patch) -> None:
    put(Inventory, "grow", lambda self, island: Inventory.__init__(self, island))

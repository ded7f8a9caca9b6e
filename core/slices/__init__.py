"""Which devices a session's slices have: bound, shared, exclusive, and bound anew when devices go.

resources    the slices of all sessions: bind, release, move
placing      which devices a slice gets, from what is free;  inventory: what is free on an island
grids        lists of devices as few grids
wording      what a user is told whose slice cannot be;  refusals: hosts that were not taken
"""

from __future__ import annotations

from . import grids
from .placing import fits
from .refusals import Refusal
from .resources import Bound, Resources, Waits

__all__ = [
    "Bound",
    "Refusal",
    "Resources",
    "Waits",
    "fits",
    "grids",
]

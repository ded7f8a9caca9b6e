"""One ordered stream an island, by one path to each host, and reports combined on the way up.

stream       numbered at the controller's end, fenced at each host's
tree         the hosts by which one message reaches all
relay        one a host: orders down, reports up;  reduce: the same report from many hosts as one
frontier     below which number no host owes anything
"""

from __future__ import annotations

from . import frontier
from .reduce import Gather
from .relay import HandOver, Relay, Stale
from .stream import Stream
from .tree import fanout_for, tree

__all__ = [
    "Gather",
    "HandOver",
    "Relay",
    "Stale",
    "Stream",
    "fanout_for",
    "frontier",
    "tree",
]

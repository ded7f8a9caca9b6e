"""Sends an ordered stream of messages to the hosts of an island, down a tree, and combines their reports on the way up.

stream       both ends of an island's stream: the controller numbers messages, a host refuses those of old paths
tree         which host passes messages on to which
relay        one in each host: passes orders down the tree and reports up;  reduce: combines equal reports into one
frontier     the number up to which all hosts have seen their messages
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

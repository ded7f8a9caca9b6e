"""One ordered stream for each island, by one path to each host; and reports combined on the way up.

stream     the controller's end: numbers what an island is told and keeps it until all hosts have seen it
tree       the hosts by which one message reaches all
relay      a host's end: takes orders, passes them on, combines reports
reduce     the same report from many hosts becomes one
frontier   the number below which no host owes anything

In: messages to number, orders and reports from peers. Out: messages to write, and which hosts have seen what.
The functions that matter most: `Stream.append`, `Relay.ordered`, `Relay.report`, `Reduction.add`, `tree`.
`controller.islands` has a `Stream` for each island, each `core.host.Host` a `Relay`.
"""

from __future__ import annotations

from . import frontier
from .reduce import Reduction
from .relay import Relay
from .stream import Stream
from .tree import fanout_for, tree

__all__ = [
    "Reduction",
    "Relay",
    "Stream",
    "fanout_for",
    "frontier",
    "tree",
]

"""Sends an ordered stream of messages to the hosts of an island, down a tree, and combines their reports on the way up.

stream     the controller's end: numbers messages and keeps them until all hosts have seen them
tree       which host passes messages on to which
relay      a host's end: takes orders, passes them on, combines reports
reduce     combines equal reports of many hosts into one
frontier   the number up to which all hosts have seen their messages

In: messages to number, orders and reports from peers. Out: messages to write, and which hosts have seen which number.
The functions that matter most: `Stream.append`, `Relay.ordered`, `Relay.report`, `Reduction.add`, `tree`.
`controller.islands` has a `Stream` for each island, each `core.host.Host` a `Relay`.
"""

from . import frontier
from .reduce import Reduction
from .relay import Relay
from .stream import Stream
from .tree import Tree, TreeShape, fanout_for, tree

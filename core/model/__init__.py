"""The plain values that all of core works with: clusters, programs and plans. No state machine is here.

spans, place      sets of hosts and devices; their size follows the shape of the set, not its number of members
atoms             groups of devices of which each slice has all or none
ranges            consecutive names as one, and tables of what they stand for
account           what the clients of one person may have
topology, torus   clusters of islands of hosts of devices, from a file or ready to use
growth            what a running cluster may become, and which hosts its processes know
program, validate             the program as a client sends it, one node for each sharded computation
plan, resharding              the program bound to devices, and which host sends which shard to which host
steps             when a gang of several equal steps ends, if it is cut
errors            the exceptions that core raises at its own caller
"""

from __future__ import annotations

from . import account, place, plan, program, ranges, spans, topology
from .account import Account, Role
from .atoms import Atoms
from .errors import Illegal, Impossible, ProgramError, SeawayError
from .growth import AllHosts, KnownHosts, all_hosts, beginning, larger_of, same_numbers, why_not_grown
from .place import Grid, Place, device_spans, line
from .plan import Code, Gang, Layout, Move, Plan, Slot, laid_out
from .program import (
    ITEM_BYTES,
    Arg,
    Computation,
    Exchange,
    Node,
    Out,
    Program,
    Ref,
    Reshard,
    Sharding,
    SliceSpec,
    Value,
)
from .ranges import FEW, Range, RangeTable, ranged
from .resharding import (
    Hosts,
    Index,
    Layouts,
    Piece,
    Shards,
    all_pieces,
    canonical,
    is_local,
    numbered,
    of_each,
    receives,
    receives_by_host,
    sends,
    sends_by_host,
    shard_bytes,
    virtual_index,
)
from .spans import EMPTY, Spans, count
from .steps import GangSteps
from .topology import (
    CLUSTER_KEYS,
    GIB,
    ISLAND_KEYS,
    MOST_DEVICES,
    MOST_ISLANDS,
    PRESETS,
    SIMULATED_KEYS,
    Cluster,
    Island,
    dims,
    small,
    table_of,
)
from .torus import Shape, devices_by_cell, extents, hosts_touched, offsets, orientations, starts, sums, unravel
from .validate import MAX_LITERALS, is_layout, validate, validate_literals, validate_put

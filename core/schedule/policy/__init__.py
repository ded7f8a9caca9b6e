"""Policies choose which client's gang enters next. There is one file for each; `base` says how to write your own.

`named` makes a policy from a text that a user writes on a command line or in a file: `stride`, `priority:age=10ms`.
"""

from .base import HOOKS, Board, Policy, Ready, Reserve, RunningGang, Surroundings, Ticket, definers, writes
from .best_fit import BestFit
from .cluster_view import ClusterView, IslandUse
from .deadline import Deadline
from .fifo import Fifo
from .placement import BestKind, FirstFit, InTurn, Placement, Spread
from .policy_names import ENTRY_POINTS, POLICIES, InstalledPolicy, named, names
from .priority import Priority
from .round_robin import RoundRobin
from .shortest import Shortest
from .slice_use import NEVER, SliceUse
from .stride import Stride

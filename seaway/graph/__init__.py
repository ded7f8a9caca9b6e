"""A user's Python becomes a graph of calls over slices, and then core's program.

signature    one computation for arguments of certain shapes: all that is known before anything runs
tracing      the program tracer, and which program is under trace in this thread
graph        calls, routes and arguments, as core's program has them
given_costs  what a computation costs, as users say it
"""

from __future__ import annotations

from . import tracing
from .given_costs import Cost, collectives, kernel_of, nanoseconds, nbytes
from .graph import Call, Given, Graph, single
from .signature import Contents, Evaluate, Signature, leaf_aval
from .tracing import Tracer, in_trace

__all__ = [
    "Call",
    "Contents",
    "Cost",
    "Evaluate",
    "Given",
    "Graph",
    "Signature",
    "Tracer",
    "collectives",
    "in_trace",
    "kernel_of",
    "leaf_aval",
    "nanoseconds",
    "nbytes",
    "single",
    "tracing",
]

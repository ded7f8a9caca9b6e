"""Turns a user's Python into a graph of calls on slices, and the graph into core's program.

signature    one computation for arguments of certain shapes: everything known before it runs
tracing      the program tracer, and the program that is being traced in this thread
graph        the graph: calls, routes and arguments, and its lowering to core's program
given_costs  costs of computations as users state them
"""

from . import tracing
from .given_costs import Cost, collectives, kernel_of, nbytes
from .graph import CallNode, Given, Graph, single
from .signature import Contents, Evaluate, Signature, leaf_aval
from .tracing import Tracer, in_trace

"""Running processes, and reporting their state.

children, supervising  start, watch, restart and end processes; their CPU time by thread
health, metrics        gRPC's standard health service; figures for Prometheus
program_options        what command lines have in common
trace_export           a controller's trace, page by page; what is new in it; how long computations took
"""

from . import health
from .children import ROOT, Child, Children, MemoryKills, become, cpu_of, end_with_parent, threads_of
from .health import HEALTH
from .program_options import add_process_options, adder, begin_log
from .supervising import Supervisor
from .trace_export import SnapshotShelf, TraceSnapshot, durations, durations_of, fetch_look, fetched, packed

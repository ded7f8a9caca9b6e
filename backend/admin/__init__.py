"""Running processes, and reporting their state.

children, supervising  start, watch, restart and end processes
health, metrics        gRPC's standard health service; figures for Prometheus
program_options        what command lines have in common
trace_export           a controller's trace, page by page; what is new in it, for those who look again and again
measured_durations, cpu_times   how long computations take; CPU time by thread
"""

from __future__ import annotations

from . import health, metrics
from .children import ROOT, Child, Children, MemoryKills, become, end_with_parent
from .cpu_times import cpu_of, threads_of
from .health import HEALTH
from .measured_durations import durations, durations_of
from .program_options import add_process_options, adder, begin_log
from .supervising import Supervisor
from .trace_export import SnapshotShelf, TraceSnapshot, fetch_look, fetched, packed

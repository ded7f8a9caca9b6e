"""Running processes, and reporting their state.

children, supervising  start, watch, restart and end processes
health, metrics        gRPC's standard health service; figures for Prometheus
trace_export           sends a controller's trace, page by page
live_looks             asks a controller what goes on, and what is new in its trace
memory_kills           whether a process was killed for lack of memory
measured_durations, cpu_times   how long computations take; CPU time by thread
"""

from __future__ import annotations

from . import health, metrics
from .children import ROOT, Child, Children, become, end_with_parent
from .cpu_times import cpu_of, threads_of
from .health import HEALTH
from .live_looks import fetch_look, packed
from .measured_durations import durations, durations_of
from .memory_kills import MemoryKills
from .supervising import Supervisor
from .trace_export import SnapshotShelf, TraceSnapshot, fetched

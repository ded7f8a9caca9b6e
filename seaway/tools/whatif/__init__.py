"""What-if: runs a recorded workload again in the simulator, under other settings, and compares it with the record.

    recorded = workload.read(path)                   # clients, programs, calls, and what each call waited for
    took = durations.measured(recorded)              # each computation's device time, without waits
    world = running.run(recorded, settings, took)    # a simulation whose clients make the recorded calls
    report.lines([...])                              # a table, side by side

workload    the calls of each client and what each call waited for, from a controller's event log
compiling   how long hosts compiled
durations   measured device times, from the replayed log
settings    the changes, and the cluster to run on
running     simulated clients that follow the workload, in a closed or an open loop
report      makespan, utilisation, latency and shares, side by side; plot and tables
"""

from . import durations, report, running, settings, workload
from .settings import Settings, changed_setup, config_of
from .workload import Workload

__all__ = [
    "Settings",
    "Workload",
    "changed_setup",
    "config_of",
    "durations",
    "report",
    "running",
    "settings",
    "workload",
]

"""What-if: runs a recorded workload again in the simulator, under other settings, and compares it with the record.

    recorded = workload.read(path)                   # clients, programs, calls, and what each call waited for
    took = call_durations.measured(recorded)              # each computation's device time, without waits
    world = whatif_runs.run(recorded, settings, took)    # a simulation whose clients make the recorded calls
    report.lines([...])                              # a table, side by side

workload    the calls of each client and what each call waited for, from a controller's event log
call_durations  measured device times, from the replayed log
settings    the changes, and the cluster to run on
whatif_runs simulated clients that follow the workload, in a closed or an open loop
report      makespan, utilisation, latency and shares, side by side; plot and tables
"""

from . import call_durations, report, settings, whatif_runs, workload
from .settings import Settings, changed_setup, config_of
from .workload import Workload

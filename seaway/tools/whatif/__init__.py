"""What-if: a recorded workload run again in the simulator, under other settings, and laid beside the record.

    recorded = workload.read(path)              # clients, programs, calls, and what each call waited for
    durations.measured(recorded)                # what each computation took, waits excluded
    world = running.run(recorded, settings)     # a simulation with clients that do as they did
    report.table([...])                         # side by side

workload    from a controller's event log: who called what, and what each call had waited for
compiling   how long hosts compiled
durations   measured device times, from the replayed log
settings    what is changed, and the cluster that it is run on
running     simulated clients that follow the workload, closed loop or open
report      makespan, utilisation, latency and share, side by side; plot and tables
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

"""Measures the figures of the simulator's host model on this machine: `python -m seaway calibrate`.

Sessions of `sw.local` run workloads; CPU times and counts go in, and a cluster file for the simulator comes out.

machine     cores, and a reference piece of Python    watching   CPU time by thread, and counts of messages and gangs
workloads   the calls that are run                    costs      the model's costs, fitted to CPU times and counts
pace        the machine's speed during measurements   stalls     how often threads are held up, and for how long
wire        gRPC messages between two processes       transfers, devices   contents between hosts; computations
fitting     least squares from counts to costs        calibration          the result, as a table and a cluster file
"""

from .calibration import Calibration, Figure
from .device_costs import addition, product
from .measuring import calibrate
from .pace import Pace, paced
from .transfer_costs import hops
from .watching import Watch
from .workloads import chained, streamed

__all__ = [
    "Calibration",
    "Figure",
    "Pace",
    "Watch",
    "addition",
    "calibrate",
    "chained",
    "hops",
    "paced",
    "product",
    "streamed",
]

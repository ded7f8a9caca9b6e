"""Measures the figures of the simulator's host model on this machine: `python -m seaway calibrate`.

Sessions of `sw.local` run workloads; CPU times and counts go in, and a cluster file for the simulator comes out.

measuring       sessions, and what is made of them        calibration   the result, as a table and a cluster file
workloads       the calls that are run                    watching      CPU time by thread, and counts of messages
costs           costs, fitted to CPU times and counts     fitting       least squares
transfer_costs  contents between hosts                    device_costs  computations
stall_costs     how often threads are held up             pace          the machine's speed during measurements
this_machine    its cores, and a piece of Python by which its speed is told
"""

from .calibration import Calibration, Figure
from .device_costs import AXIS, addition, product
from .measuring import calibrate
from .pace import Pace, paced
from .transfer_costs import hops, to_and_fro
from .watching import Watch
from .workloads import chained, step, streamed

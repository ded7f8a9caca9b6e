"""What the simulator's host model needs to know, measured on the machine at hand: `python -m seaway calibrate`.

machine     its cores                               watching   CPU time by thread, and counts of what was done
workloads   what is run for that                     costs      what of the model's costs these say
pace        how fast it is, all the while
wire        two processes and nothing else           transfers, devices   contents; what is computed
fitting     from counts and times to costs           calibration          what was found, as a cluster file
"""

from .calibration import Calibration, Figure
from .devices import addition, product
from .measuring import calibrate
from .pace import Pace, paced
from .transfers import hops
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

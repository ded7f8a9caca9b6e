"""What the simulator's host model needs to know, measured on the machine at hand: `python -m seaway calibrate`.

machine     its cores                               watching   CPU time by thread, and counts of what was done
workloads   what is run for that                     costs      what of the model's costs these say
pace        how fast it is, all the while
wire        two processes and nothing else           transfers, devices   contents; what is computed
fitting     from counts and times to costs           calibration          what was found, as a cluster file
"""

from .calibration import Calibration, Figure
from .measuring import calibrate
from .pace import Pace, paced

__all__ = ["Calibration", "Figure", "Pace", "calibrate", "paced"]

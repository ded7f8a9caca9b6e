"""What the simulator's host model needs to know, measured on the machine at hand: `python -m seaway calibrate`.

machine     its cores, and how fast it is            watching   CPU time by thread, and counts of what was done
workloads   what is run for that                     costs      what of the model's costs these say
wire        two processes and nothing else           transfers, devices   contents; what is computed
fitting     from counts and times to costs           calibration          what was found, as a cluster file
"""

from .calibration import Calibration, Figure
from .machine import speed
from .measuring import calibrate

__all__ = ["Calibration", "Figure", "calibrate", "speed"]

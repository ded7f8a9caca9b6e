"""Costs of computations: a JAX function, a recorded time or a stated time goes in, a `Cost` comes out.

The TPU compiler gives the best costs and needs no TPU. A roofline needs only the CPU compiler.
"""

from . import units
from .choice import costs
from .cost import Cost, Memory
from .errors import CostError, NoCompiler, TooBig
from .estimate import work_of
from .roofline import roofline_costs
from .synthetic import synthetic
from .tpu import tpu_costs
from .units import duration

__all__ = [
    "Cost",
    "CostError",
    "Memory",
    "NoCompiler",
    "TooBig",
    "costs",
    "duration",
    "roofline_costs",
    "synthetic",
    "tpu_costs",
    "units",
    "work_of",
]

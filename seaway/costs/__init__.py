"""Costs of computations: from the TPU compiler, from a roofline, recorded, or stated."""

from . import units
from .choice import costs
from .cost import Cost, Memory
from .estimate import work_of
from .roofline import roofline_costs
from .synthetic import synthetic
from .tpu import tpu_costs
from .units import duration

__all__ = [
    "Cost",
    "Memory",
    "costs",
    "duration",
    "roofline_costs",
    "synthetic",
    "tpu_costs",
    "units",
    "work_of",
]

"""Costs of computations: from the TPU compiler, from a roofline, recorded, or stated."""

from .choice import costs
from .cost import Cost, Memory
from .errors import CostError, NoCompiler, TooBig
from .roofline import roofline_costs
from .synthetic import synthetic
from .tpu import tpu_costs

__all__ = [
    "Cost",
    "CostError",
    "Memory",
    "NoCompiler",
    "TooBig",
    "costs",
    "roofline_costs",
    "synthetic",
    "tpu_costs",
]

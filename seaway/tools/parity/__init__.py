"""Parity: runs one program in a simulation and on real devices, and compares what core decided and hosts executed."""

from . import running
from .compare import Comparison
from .running import ParityShape, Program

__all__ = [
    "Comparison",
    "ParityShape",
    "Program",
    "running",
]

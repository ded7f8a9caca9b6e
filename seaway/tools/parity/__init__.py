"""Parity: one program, simulated and on real devices; what core decided in both, and what devices were told."""

from . import running
from .compare import Comparison
from .running import Program, Shape

__all__ = [
    "Comparison",
    "Program",
    "Shape",
    "running",
]

"""Parity: runs one program in a simulation and on real devices, and compares what core decided."""

from . import parity_runs
from .compare import Comparison
from .parity_runs import ParityShape, Program

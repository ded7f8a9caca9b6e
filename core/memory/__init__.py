"""Device memory and logical buffers, counted.

buffers      one reference count a logical buffer
ledger       memory in the order of the gangs: what is there, what admitted runs may add, who waits
footprint    what a plan takes of each device, step by step;  atom_memory: the counters of one atom
spill        idle buffers go to host memory and come back
"""

from __future__ import annotations

from .buffers import Buffer, Buffers
from .footprint import Footprint, donates, effective
from .ledger import Ledger, NeverFits, Short
from .spill import HostMemory, Spill

__all__ = [
    "Buffer",
    "Buffers",
    "Footprint",
    "HostMemory",
    "Ledger",
    "NeverFits",
    "Short",
    "Spill",
    "donates",
    "effective",
]

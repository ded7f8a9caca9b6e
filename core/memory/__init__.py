"""Counts device memory and the references to logical buffers.

buffers      one reference count for each logical buffer
ledger       admits runs: counts the memory that is in use and that admitted runs may still add
footprint    how much memory a plan needs on each device, step by step;  atom_memory: the counters of one atom
spill        moves idle buffers to host memory and back
"""

from .buffers import Buffer, Buffers
from .footprint import Footprint, donates, effective
from .ledger import LacksMemory, Ledger, NeverFits, size_text
from .spill import HostBytes, Spill

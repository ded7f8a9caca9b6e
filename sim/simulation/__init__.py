"""The whole: machines, network, hosts and devices put together, run, and broken on purpose.

simulation       `Simulation(load("A"), policy=..., profile=...)`; `run(until=...)`; `trace`
boot             a cluster that stands at time 0
faults           what will befall whom, announced with its time;  fault_injection: it happens
"""

from __future__ import annotations

from .faults import Fault
from .simulation import MIB, Simulation, bounds_of, fanout_of

__all__ = [
    "MIB",
    "Fault",
    "Simulation",
    "bounds_of",
    "fanout_of",
]

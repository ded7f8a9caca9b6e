"""The whole simulation: machines, network, hosts and devices, put together, run, and given faults.

simulation       `Simulation(load("A"), policy=..., profile=...)`; `run(until=...)`; `trace`
boot             a cluster that is up at time 0
faults           faults that are announced with their times;  fault_injection: carries them out
takeover         when a fault falls due: a cohort becomes a process for each host, with the same past
regrouping       when it is over: the processes become a cohort again
"""

from .faults import Fault
from .simulation import MIB, Simulation, bounds_of, fanout_of

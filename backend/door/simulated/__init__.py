"""Simulated devices behind the door: a real client, and arrays that have shapes only.

simulated_devices   what a session asks, for simulated devices
described_code      what a program costs, as it is described
simulation_port     what the simulation and the door know of each other
simulated_process   serves it

Neighbours: `cluster` does all but contents; `seaway.sessions.simulated_door` is the simulation.
"""

from .simulated_process import run_simulated_door
from .simulation_port import Describe, DescribedCode, ServedSimulation, SimulatedLine, SimulationPort

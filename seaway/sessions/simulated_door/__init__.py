"""JAX programs in a simulation: each session of a door is one client of a simulated cluster.

simulated_cluster  what the door's sessions have in common: the simulation, code by its hash, what it costs
simulated_link     one session's client, which the door calls as it calls a real one
simulated_time     lets time pass while programs wait

The door itself, JAX included, is `backend.door`; this is the other side of its `SimulationPort`.
"""

from .simulated_cluster import serve_simulation

"""The simulator: a SimPy driver that turns core's commands into events on modelled hardware.

Begin with `simulation.Simulation`. `hardware.load` and `hardware.profile` describe the cluster that it simulates.
`cohort` makes 2048 TPUs quick to simulate. A package imports only from packages above it in this list:

    engine, hardware    time, threads and jitter;  clusters, and how long things take there
    network             messages and contents on their way
    hosts, cohort       processes and devices: one by one, and alike ones together
    simulation          all of these, put together
    baselines           other systems on the same hardware
"""

__seaway__ = True

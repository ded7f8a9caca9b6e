"""The simulator: a SimPy driver that turns core's commands into events on modelled hardware.

`simulation.Simulation` is where to begin; `hardware.load` and `hardware.profile` say on what; `cohort` is what makes
2048 TPUs quick. A package imports only from those above it:

    engine, hardware    time, threads and jitter;  clusters, and what things take there
    network             what is under way
    hosts, cohort       processes and devices: one by one, and alike ones together
    simulation          all of it
    baselines           other systems on the same hardware
"""

__seaway__ = True

"""The simulator: a SimPy driver that turns core's commands into events on modelled hardware.

`simulation.Simulation` is where to begin; `hardware.load` and `profiles.profile` say on what; `cohort` is what makes
2048 TPUs quick.
"""

__seaway__ = True

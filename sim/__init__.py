"""The simulator: a SimPy driver that turns core's commands into events on modelled hardware.

Nothing is here yet; it lands after core.
"""

__seaway__ = True

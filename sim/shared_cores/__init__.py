"""Machines with fewer cores than threads: which thread has a core, which wait, and Python processes among them.

core_sharing      which process is on which machine; all that the simulation and its processes ask for
cores             the cores of one machine: first come, first served
crowded_host      a host whose threads wait for cores, and a client whose calls do
message_batching  Python processes send several messages as one
computing         devices that compute on their hosts' cores
"""

from .core_sharing import SharedMachines

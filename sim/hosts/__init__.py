"""Core's machines as simulated processes: their threads, the cores for which threads may wait, and their devices.

processes         the controller and hosts: each message costs time on the thread that handles it
client_process    a client, driven by a user's code
shared_cores      a host on a machine with fewer cores than threads;  cores: which thread has a core, and which wait
message_batching  Python processes send several messages as one
device_queues     queues of gangs that start together;  computing: devices that compute on their hosts' cores
worlds            an epoch's collective world is ready when all its members have joined
context           what a process needs of its simulation
"""

from __future__ import annotations

from .client_process import SimClient
from .computing import Computing, Takes, rounds
from .context import Context, RareTimes
from .cores import THREADS, Cores, CoreStalls, Share, SharedMachines
from .device_queues import Fabric
from .message_batching import Together, Wires
from .processes import CARRIED, ControllerProcess, HostProcess, Process, is_client
from .shared_cores import CrowdedHost
from .worlds import SimWorlds

__all__ = [
    "CARRIED",
    "THREADS",
    "Computing",
    "Context",
    "ControllerProcess",
    "CoreStalls",
    "Cores",
    "CrowdedHost",
    "Fabric",
    "HostProcess",
    "Process",
    "RareTimes",
    "Share",
    "SharedMachines",
    "SimClient",
    "SimWorlds",
    "Takes",
    "Together",
    "Wires",
    "is_client",
    "rounds",
]

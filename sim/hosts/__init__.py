"""Core's machines as processes: their threads, the cores they may have to wait for, and their devices.

processes         controller and hosts: every message has its cost, on the thread that handles it
client_process    a client, driven by a user's code
shared_cores      a host whose machine has fewer cores than threads;  cores: who has a core, and who waits
message_batching  what Python processes say to one another, several messages in one
device_queues     queues of gangs that start together;  computing: devices that compute on their hosts' cores
worlds            an epoch's collective world stands when all its members have come
context           what a process needs of the simulation that it is in
"""

from __future__ import annotations

from .client_process import SimClient
from .computing import Computing, Takes, rounds
from .context import Context, Times
from .cores import THREADS, Cores, Machines, Share, Stalls
from .device_queues import Fabric
from .message_batching import Together, Wires
from .processes import CARRIED, ControllerProcess, HostProcess, Process, is_client
from .shared_cores import CrowdedHost
from .worlds import Worlds

__all__ = [
    "CARRIED",
    "THREADS",
    "Computing",
    "Context",
    "ControllerProcess",
    "Cores",
    "CrowdedHost",
    "Fabric",
    "HostProcess",
    "Machines",
    "Process",
    "Share",
    "SimClient",
    "Stalls",
    "Takes",
    "Times",
    "Together",
    "Wires",
    "Worlds",
    "is_client",
    "rounds",
]

"""Core's machines as simulated processes: their threads, the cores for which threads may wait, and their devices.

processes       the controller and hosts: each message costs time on the thread that handles it
client_process  a client, driven by a user's code, and its end of transfers
device_queues   queues of gangs that start together
context         what a process needs of its simulation; collective worlds, ready when all members have joined
"""

from .client_process import ClientTransfer, SimClient
from .context import Context, RareTimes, SimWorlds
from .device_queues import Fabric, GangOnDevices, Takes
from .processes import (
    CARRIED,
    DATA,
    KEPT,
    WORDS,
    ControllerProcess,
    HostProcess,
    Process,
    code_ready,
    is_word,
    nothing_said,
)

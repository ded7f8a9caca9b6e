"""Core's machines as simulated processes: their threads, the cores for which threads may wait, and their devices.

processes       the controller and hosts: each message costs time on the thread that handles it
client_process  a client, driven by a user's code; client_transfer: its end of transfers
device_queues   queues of gangs that start together
worlds          an epoch's collective world is ready when all its members have joined
context         what a process needs of its simulation
"""

from __future__ import annotations

from .client_process import SimClient
from .client_transfer import ClientTransfer
from .context import Context, RareTimes
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
from .worlds import SimWorlds

"""The controller as a process.

server          core's controller with its node, its calls and its children
controller_cli  its command line, `python -m backend.server.controller_cli`
registry        agents that enrol, and the hosts that they become
state_folder    what is kept for the controller's next start;  eventlogs: its event log in a file
world_services  a coordination process for each island's epoch
policies        a policy by name, `module:NAME` or `FILE.py:NAME`
cluster_status  islands, clients and queues as plain data
"""

from __future__ import annotations

from . import eventlogs
from .eventlogs import Recording, machine_of, read
from .policies import HELP, policy_from
from .server import Server
from .state_folder import Held

__all__ = [
    "HELP",
    "Held",
    "Recording",
    "Server",
    "eventlogs",
    "machine_of",
    "policy_from",
    "read",
]

"""What every process of a cluster has: streams to other processes, calls beside them, and a synchronised clock.

node        runs one of core's machines in an asyncio loop, with its streams, its timer and its lock
calls       makes and answers the calls beside the streams
send_queue  messages to one peer, several in one write;  loopback: between machines of one process
clock_sync  the offset of each host's clock from the controller's
traffic     counts messages and their contents
"""

from __future__ import annotations

from . import calls
from .calls import FULL, INVALID, SERVICE, CallError, Context, ask, message_of, refuse
from .clock_sync import Clocks, HostClock, shifted
from .node import STREAM, NetworkNode, new_server
from .send_queue import GATHER, GATHER_MOST, Load, loaded

__all__ = [
    "FULL",
    "GATHER",
    "GATHER_MOST",
    "INVALID",
    "SERVICE",
    "STREAM",
    "CallError",
    "Clocks",
    "Context",
    "HostClock",
    "Load",
    "NetworkNode",
    "ask",
    "calls",
    "loaded",
    "message_of",
    "new_server",
    "refuse",
    "shifted",
]

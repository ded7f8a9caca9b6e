"""What every process of a cluster has: streams to others, calls beside them, and an agreed time.

node        one of core's machines in an asyncio loop, with its streams, its timer and its lock
calls       asking and answering the calls beside the streams
send_queue  messages to one peer, several in one write;  loopback: between machines of one process
clock_sync  each host's clock against the controller's
traffic     how many messages there were, and what was in them
"""

from __future__ import annotations

from . import calls
from .calls import FULL, INVALID, SERVICE, Context, Wrong, ask, message_of, refuse
from .clock_sync import Clocks, HostClock, shifted
from .node import STREAM, Node, new_server
from .send_queue import GATHER, GATHER_MOST, Load, loaded

__all__ = [
    "FULL",
    "GATHER",
    "GATHER_MOST",
    "INVALID",
    "SERVICE",
    "STREAM",
    "Clocks",
    "Context",
    "HostClock",
    "Load",
    "Node",
    "Wrong",
    "ask",
    "calls",
    "loaded",
    "message_of",
    "new_server",
    "refuse",
    "shifted",
]

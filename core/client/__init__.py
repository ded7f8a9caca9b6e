"""One client as a machine: the user's calls go in, and nothing waits for an answer.

clientside   ClientSide: a client with its share of the data plane
client       the session: names given at once, calls sent, answers heard
persistent, retries        runs that are submitted again when the cluster fails them
call_batching              when calls leave, and how many in one message
client_limits, handles, awaited      what may be called when; buffers by name; what runs wait for
"""

from __future__ import annotations

from .client import Client
from .client_limits import Blocked, Limits, Submitted
from .clientside import ClientSide
from .persistent import Persistent

__all__ = [
    "Blocked",
    "Client",
    "ClientSide",
    "Limits",
    "Persistent",
    "Submitted",
]

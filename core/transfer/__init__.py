"""The data plane: contents of buffers in chunks, as fast as the receivers grant credits.

machine      one a host and one a client: Transfer
sending, receiving     the two halves;  credits: the transfer with the lowest seq is served first
pending      words that came before their transfer was opened, and transfers that are over
pieces       which pieces of a client's put or get concern a host
"""

from __future__ import annotations

from .machine import CHUNK, POOL, Transfer
from .pieces import Piece, from_client, hosts_of, senders_to_client, to_client

__all__ = [
    "CHUNK",
    "POOL",
    "Piece",
    "Transfer",
    "from_client",
    "hosts_of",
    "senders_to_client",
    "to_client",
]

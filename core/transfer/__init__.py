"""Moves the contents of buffers between hosts and clients, in chunks, as fast as the receivers grant credits.

transfer_machine    `Transfer`, the machine that each host and each client has
sending, receiving  its two halves;  credits: how a receiver shares its credits among transfers
pending             messages that came before their transfer was opened, and the transfers that have ended
pieces              which pieces of a client's put or get a host sends or receives
"""

from .credits import at_once
from .pieces import ALL, Piece, from_client, from_hosts, hosts_of, senders_to_client, to_client
from .transfer_machine import CHUNK, POOL, Transfer

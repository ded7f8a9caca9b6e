"""The messages between processes, as values: nothing here opens a connection.

envelopes      messages of a stream: packets of core's links with contents of chunks, addresses, passes
call_messages  requests and answers of the unary calls beside the streams
versions       which Seaway a process is, and whether another process is the same
"""

from __future__ import annotations

from . import call_messages, envelopes, versions
from .call_messages import (
    MEETINGS,
    OF_HOSTS,
    PAIRS,
    AboutReply,
    CancelCall,
    CancelReply,
    Described,
    Enrol,
    Keep,
    Permit,
    Recorded,
    Report,
    SeenReply,
    Status,
)
from .envelopes import MESSAGE, Address, Packet

__all__ = [
    "MEETINGS",
    "MESSAGE",
    "OF_HOSTS",
    "PAIRS",
    "AboutReply",
    "Address",
    "CancelCall",
    "CancelReply",
    "Described",
    "Enrol",
    "Keep",
    "Packet",
    "Permit",
    "Recorded",
    "Report",
    "SeenReply",
    "Status",
    "call_messages",
    "envelopes",
    "versions",
]

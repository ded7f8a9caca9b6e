"""The messages between processes, as values: nothing here opens a connection.

frames         what streams consist of: packets of core's links with contents of chunks, addresses, openings
call_messages  requests and answers of the unary calls beside the streams
versions       which Seaway a process is, and whether another process is the same
"""

from __future__ import annotations

from . import call_messages, frames, versions
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
from .frames import MESSAGE, Address, Contents, Opening, Pass

__all__ = [
    "MEETINGS",
    "MESSAGE",
    "OF_HOSTS",
    "PAIRS",
    "AboutReply",
    "Address",
    "CancelCall",
    "CancelReply",
    "Contents",
    "Described",
    "Enrol",
    "Keep",
    "Opening",
    "Pass",
    "Permit",
    "Recorded",
    "Report",
    "SeenReply",
    "Status",
    "call_messages",
    "frames",
    "versions",
]

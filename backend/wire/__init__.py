"""The messages between processes, as values: nothing here opens a connection.

framing        what streams consist of: packets of core's links with contents of chunks, addresses, openings
call_messages  requests and answers of the unary calls beside the streams
versions       which Seaway a process is, and whether another process is the same
"""

from . import call_messages, framing, versions
from .call_messages import (
    MEETINGS,
    PAIRS,
    AboutReply,
    CancelCall,
    CancelReply,
    Described,
    Enrol,
    GrowCall,
    Keep,
    LookReply,
    OperateCall,
    OperateReply,
    Permit,
    Recorded,
    Report,
    SeenReply,
    Status,
    UsageCall,
)
from .framing import MESSAGE, Address, Answered, Contents, FrameReader, Opening, Pass, StreamFrame

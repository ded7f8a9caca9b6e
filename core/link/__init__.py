"""Reliable message streams between processes, and their encoding. A stream survives the loss of its connection.

link         one end of a stream: sequence numbers, acknowledgements, resends, a lease
endpoint     a machine with all its links: a message arrives once and in order, or the peer is declared gone
codec        messages as bytes, decoded with their types checked;  packing: a plan's places are written once
batching     when a host reports ends of gangs together; how much goes into one write
"""

from __future__ import annotations

from . import batching, codec, endpoint, link, packing
from .batching import BATCH, MANY, ReportPacer
from .codec import Message, Unreadable
from .endpoint import (
    ConnectionDown,
    ConnectionUp,
    Dial,
    Endpoint,
    Hand,
    HangUp,
    Hello,
    NearDown,
    NearUp,
    PacketReceived,
    PeerMoved,
    Write,
    for_client,
    for_controller,
    for_host,
)
from .link import Frame

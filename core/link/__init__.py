"""A conversation that outlives its connections, and its bytes.

link         one end: sequence numbers, acknowledgement, resend, lease
endpoint     a machine with all its links: what is sent arrives once and in order, or the peer is gone
codec        messages as bytes, decoded with types checked;  packing: a plan's places written once
batching     how many messages travel together, and how long more are waited for
"""

from __future__ import annotations

from . import batching, codec, endpoint, link, packing
from .batching import Gathering
from .codec import Message, Unreadable
from .endpoint import (
    ConnectionDown,
    ConnectionUp,
    Dial,
    Elsewhere,
    Endpoint,
    Hang,
    Hello,
    PacketCame,
    Write,
    for_client,
    for_controller,
    for_host,
)
from .link import Frame

__all__ = [
    "ConnectionDown",
    "ConnectionUp",
    "Dial",
    "Elsewhere",
    "Endpoint",
    "Frame",
    "Gathering",
    "Hang",
    "Hello",
    "Message",
    "PacketCame",
    "Unreadable",
    "Write",
    "batching",
    "codec",
    "endpoint",
    "for_client",
    "for_controller",
    "for_host",
    "link",
    "packing",
]

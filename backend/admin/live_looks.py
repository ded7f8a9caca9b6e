"""Looks at a controller from elsewhere: what goes on, and what is new in its trace.

    look = await fetch_look(channel, access, Look(), 5.0)                         # all of it, the first time
    look = await fetch_look(channel, access, Look(look.identity, cursor), 5.0)    # and then what is new

Neighbours: `server.live_look`, which answers; `seaway.dashboard`, which asks; `core.record.looks`, the data;
`trace_export`, a whole trace at once.
"""

from __future__ import annotations

import grpc
import grpc.aio
import msgspec

from core.record import LiveLook, Look

from ..auth import Access
from ..node import CallError, calls
from ..wire import LookReply, versions


def packed(look: LiveLook) -> LookReply:
    return LookReply(versions.mine(), msgspec.msgpack.encode(look))


async def fetch_look(channel: grpc.aio.Channel, access: Access, request: Look, timeout: float) -> LiveLook:
    """Look at the controller behind a channel. Raises CallError."""
    found: LookReply = await calls.ask(channel, access, request, timeout)
    if found.version != versions.mine():
        raise CallError(
            f"Seaway {found.version} answers there, and Seaway {versions.mine()} asks: it must be the same; "
            f"`seaway status` works with any",
            versions.OTHER,
        )
    return msgspec.msgpack.decode(found.packed, type=LiveLook)

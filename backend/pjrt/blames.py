"""What JAX says when something goes wrong, as core's blame: whose fault it is, and the first text of it.

A collective that fails because a peer is gone fails here too, with whatever the transport says of it; that is told as
"peer", and core waits for the lease to say who it was.
"""

from __future__ import annotations

import re

from core.protocol import Blame

OWN = (
    "XlaRuntimeError",
    "JaxRuntimeError",
    "Unusable",
    "Misfit",
    "Overflow",
    "Gone",
)  # words that say nothing
LONGEST = 2000  # characters: a compiler may say a great deal more

PEERS = re.compile(
    r"gloo|nccl|rendezvous|connection (reset|closed|refused|timed out)|socket closed|peer|heartbeat"
    r"|coordination service|UNAVAILABLE|DEADLINE_EXCEEDED|collective (operation )?timed? ?out|CollectiveTimeout",
    re.IGNORECASE,
)
MEMORY = re.compile(r"RESOURCE_EXHAUSTED|out of memory", re.IGNORECASE)


def of(error: BaseException, *, together: bool = False) -> Blame:
    """`together`: other hosts had a part in it, so it may be theirs."""
    text = text_of(error)
    if together and PEERS.search(text):
        return Blame("peer", text)
    if MEMORY.search(text):
        return Blame("no-memory", text)
    return Blame("user", text)


def text_of(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    named = type(error).__name__
    if named not in OWN and named not in text:
        text = f"{named}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters in all)"

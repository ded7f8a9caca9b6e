"""How much of what one process says to another goes together, and how long more is waited for, in any driver.

A message on the wire costs far more than what is in it: the first goes at once, and what follows it closely goes
together. The more went together, the longer is waited for more: who talks back and forth waits little, a stream is
cheap. Neighbours: backend's `outbox` and `agent`, sim's `wires`.
"""

from __future__ import annotations

MANY = 512  # words in a message, at most
BATCH = 1 << 20  # bytes, with which a message is full
SMALL = 16 << 10  # bytes: of larger ones the contents are what costs, and nobody waits for more
GATHER = 1_000_000  # nanoseconds, for each that went ...
GATHER_MOST = 4_000_000  # ... and no longer


def pause_after(number: int, nbytes: int = 0, each: int = GATHER, most: int = GATHER_MOST) -> int:
    """Nanoseconds between a message of so many words and bytes, or a report of so many ends, and the next. `each`,
    `most`: as they really last, where that is known."""
    return min(each * number, most) if nbytes < SMALL else 0

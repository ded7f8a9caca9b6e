"""How much of what one process says to another goes together, and how long more is waited for, in any driver.

A message on the wire costs far more than what is in it. Who says little is never held up: a word goes at once, and so
do the next (`FREE`). What follows more closely than a message in each `GATHER` goes together, and the more went
together, the longer is waited for more: a stream is cheap. A word that goes with others counts for half, so that pauses
grow with a stream's rate, and do not leap. Neighbours: backend's `outbox` and `agent`, sim's `wires`.
"""

from __future__ import annotations

MANY = 512  # words in a message, at most
BATCH = 1 << 20  # bytes, with which a message is full
SMALL = 16 << 10  # bytes: of larger ones the contents are what costs, and nobody waits for more
FREE = 2  # words behind which nobody waits, if there was silence before
GATHER = 1_000_000  # nanoseconds, for each that went, and half of that for what went with it ...
GATHER_MOST = 4_000_000  # ... and no longer


class Gathering:
    """What one sender has said to one taker, as far as it matters. `each`, `most`: as these really last."""

    __slots__ = ("_each", "_most", "_until")

    def __init__(self, each: int = GATHER, most: int = GATHER_MOST) -> None:
        self._each, self._most = each, most
        self._until = 0  # what has been said would have lasted as long, at its rate

    def pause(self, now: int, number: int, nbytes: int = 0) -> int:
        """Nanoseconds between the message that goes now, of so many words and bytes, and the next."""
        if nbytes >= SMALL:
            return 0
        lasts = max(self._until, now) + (1 + number) * self._each // 2
        free = now + FREE * self._each
        self._until = min(lasts, free + self._most)
        return max(0, self._until - free)

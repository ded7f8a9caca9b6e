"""Says how long a sender collects messages before it sends the next batch. All drivers use this one rule.

Sending a batch costs far more than the messages in it. A sender that has been silent sends its first `FREE` batches
at once. A sender that goes on at more than one batch in each `GATHER` has to pause after each batch, for at most
`GATHER_MOST`. So a stream of small messages is cheap, and a single message is not delayed. Each further message of a
batch counts half as much as the first, so pauses grow smoothly with the rate. Neighbours: backend's `outbox` and
`agent`, sim's `wires`.
"""

from __future__ import annotations

MANY = 512  # messages in a batch, at most
BATCH = 1 << 20  # bytes; a batch of this size is full
SMALL = 16 << 10  # bytes; after a larger batch there is no pause, because its contents are what costs
FREE = 2  # batches that a sender may send after silence before it has to pause
GATHER = (
    1_000_000  # nanoseconds that a batch of one message counts for; each further message counts half of it
)
GATHER_MOST = 4_000_000  # nanoseconds; the longest pause


class BatchPacer:
    """Computes the pauses of one sender towards one receiver. `each` and `most` replace GATHER and GATHER_MOST."""

    __slots__ = ("_each", "_most", "_until")

    def __init__(self, each: int = GATHER, most: int = GATHER_MOST) -> None:
        self._each, self._most = each, most
        self._until = 0  # the time at which the batches sent so far have used up what they count for

    def pause(self, now: int, number: int, nbytes: int = 0) -> int:
        """Return the nanoseconds to wait after the batch that is sent now, of so many messages and bytes."""
        if nbytes >= SMALL:
            return 0
        until = max(self._until, now) + (1 + number) * self._each // 2
        free = now + FREE * self._each
        self._until = min(until, free + self._most)
        return max(0, self._until - free)

"""How long things take in the world, in simulated time."""

from __future__ import annotations

from typing import NamedTuple

US, MS, S = 1_000, 1_000_000, 1_000_000_000


class Timing(NamedTuple):
    """Nanoseconds."""

    latency: int = 50 * US
    jitter: int = 0  # up to so much more, drawn for each frame
    compile: int = 1 * MS
    form: int = 1 * MS  # to set up, and to join, the world of an epoch
    read: int = 10 * US  # where rows are to go
    copy: int = 20 * US
    redial: int = 1 * MS
    reach: int = (
        0  # a process that begins anew, or goes on, is found again within so long by each who wants it
    )
    restart: int = 5 * MS  # of a host that was dismissed
    lease: int = 2 * S
    beat: int = 500 * MS
    patience: int = 1 * MS

"""How long things take in the world, in simulated nanoseconds."""

from __future__ import annotations

from typing import NamedTuple

US, MS, S = 1_000, 1_000_000, 1_000_000_000


class Timing(NamedTuple):
    """All durations are in nanoseconds."""

    latency: int = 50 * US
    jitter: int = 0  # at most this is added to the latency, drawn for each frame
    compile: int = 1 * MS
    form: int = 1 * MS  # to set up, and to join, the world of an epoch
    read: int = 10 * US  # to read where rows of a sparse exchange go
    copy: int = 20 * US
    redial: int = 1 * MS
    reach: int = 0  # peers reach a process that was restarted, or stopped and continued, within this time
    restart: int = 5 * MS  # for a host that was dismissed
    lease: int = 2 * S
    beat: int = 500 * MS
    patience: int = 1 * MS

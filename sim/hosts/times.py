"""How long it takes what happens seldom: compiling, forming a world, finding out that a connection is gone."""

from __future__ import annotations

import msgspec

S = 1_000_000_000


class Times(msgspec.Struct, frozen=True):
    """Nanoseconds of what happens seldom."""

    compile: int = (
        0  # of a code, on each host: by default, programs have been compiled before the clock starts
    )
    form: int = 200_000_000  # to set up an epoch's world
    join: int = 300_000_000  # to join it
    lease: int = 10 * S  # a connection that is silent for so long is gone
    restart: int = 5 * S  # of a host that was dismissed
    beat: int = 1 * S
    pcie_latency: int = 1_000

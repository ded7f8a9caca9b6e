"""Settings of the controller. Nothing here depends on a driver."""

from typing import Literal

import msgspec

from ..model import MAX_LITERALS
from .watch import Bounds


class Config(msgspec.Struct, frozen=True):
    window: int = 8  # gangs ahead on a device (d); with 1, it idles from a gang's end until the next has been sent
    window_span: int = 0  # nanoseconds: more may be ahead, while they take less than that together ...
    window_most: int = 64  # ... up to so many
    max_passes: int = 8  # how often a blocked wide gang, or a waiting big run, may be passed
    # nanoseconds for which a policy may keep devices free, beyond what runs there
    max_reserved: int = 60_000_000_000
    # nanoseconds: a slice that gave way keeps its devices for so long when it has come back, and is away for so long
    preempt_keep: int = 10_000_000_000
    preempt_longest: int = 600_000_000_000
    # may a gang enter before its inputs from elsewhere are made
    early: Literal["always", "idle", "never"] = "idle"
    fanout: int = 23  # of the tree to the hosts
    accounts: bool = False  # each client is of an account, and the driver says of which
    literal_limit: int = MAX_LITERALS  # bytes of arguments that ride in a call
    max_clients: int = 256
    max_programs: int = 4096  # a client
    max_runs: int = 1024  # a client, not ended
    max_buffers: int = 1 << 20  # a client
    bounds: Bounds = Bounds()
    lease: int = 10_000_000_000  # nanoseconds of silence after which the driver gives a peer up
    recovery: int = 30_000_000_000  # nanoseconds a restarted controller waits for hosts and clients


# On devices a step may be shorter than the way of a message: many of them are under way then.
ON_DEVICES = Config(window_span=5_000_000)

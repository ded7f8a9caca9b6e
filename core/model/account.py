"""An account: how much the clients of one person may have. A driver makes them (`backend.auth.accounts_file`).

Neighbour: `core.controller.accounts`, which holds clients to them. A limit of None is no limit.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# A viewer looks. A user runs programs, too, and cancels its own runs. An operator may do all that a person may.
# "cluster": what has the cluster's own secret, as agents have.
Role = Literal["viewer", "user", "operator", "cluster"]


class Account(msgspec.Struct, frozen=True):
    """`weight`, `priority`: the highest that a client of it may ask for. The others are of all its clients together."""

    name: str = ""  # "": nobody in particular, where there is one token for all
    role: Role = "cluster"
    weight: int | None = None
    priority: int | None = None
    devices: int | None = None  # of its slices, shared or exclusive
    device_memory: int | None = None  # bytes of the arrays that it holds
    host_memory: int | None = None  # bytes of these that were moved to hosts' memory
    programs: int | None = None
    runs: int | None = None  # that have not ended
    device_seconds: int | None = None  # in 24 hours

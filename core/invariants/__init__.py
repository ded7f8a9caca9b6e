"""Checks what must always be true, in any driver. There is one invariant in each file.

A driver makes `Checks(everything())` and reports to it what it does (observations.py). The first invariant that does
not hold raises a `Violation`. base.py says how.
"""

from __future__ import annotations

from . import observations
from .base import Checker, Checks, Violation
from .buffers import Buffers
from .counters import Counted, CountersAddUp
from .double_booking import DoubleBooking
from .epochs import Epochs
from .gang_atomicity import GangAtomicity
from .memory import Memory
from .observations import (
    Abandoned,
    Allocated,
    BufferFreed,
    BufferHeld,
    BufferLetGo,
    BufferLost,
    BufferMade,
    BufferUnused,
    BufferUsed,
    ChunkArrived,
    ChunkSent,
    ClientLost,
    Entered,
    EpochFormed,
    Finished,
    Granted,
    Heeded,
    HostJoined,
    HostLost,
    HostSeated,
    Launched,
    Obeyed,
    Observation,
    PeerLost,
    Released,
    RunEnded,
    RunSubmitted,
    SpoiltCame,
    Started,
    TransferOpened,
    TransferOver,
)
from .one_order import OneOrder
from .runs_end import RunsEnd
from .transfers import Transfers


def everything(controller: Counted | None = None, pool: int = 0) -> list[Checker]:
    """Return all checkers. `books` are the controller's, if it is in this process. `pool`: see `Transfers`."""
    checkers: list[Checker] = [
        GangAtomicity(), OneOrder(), DoubleBooking(), Memory(), Buffers(), RunsEnd(), Epochs(),
        Transfers(pool),
    ]  # fmt: skip
    return [*checkers, CountersAddUp(controller)] if controller is not None else checkers


__all__ = [
    "Abandoned",
    "Allocated",
    "BufferFreed",
    "BufferHeld",
    "BufferLetGo",
    "BufferLost",
    "BufferMade",
    "BufferUnused",
    "BufferUsed",
    "Buffers",
    "Checker",
    "Checks",
    "ChunkArrived",
    "ChunkSent",
    "ClientLost",
    "Counted",
    "CountersAddUp",
    "DoubleBooking",
    "Entered",
    "EpochFormed",
    "Epochs",
    "Finished",
    "GangAtomicity",
    "Granted",
    "Heeded",
    "HostJoined",
    "HostLost",
    "HostSeated",
    "Launched",
    "Memory",
    "Obeyed",
    "Observation",
    "OneOrder",
    "PeerLost",
    "Released",
    "RunEnded",
    "RunSubmitted",
    "RunsEnd",
    "SpoiltCame",
    "Started",
    "TransferOpened",
    "TransferOver",
    "Transfers",
    "Violation",
    "everything",
    "observations",
]

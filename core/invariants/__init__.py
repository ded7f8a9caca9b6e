"""What must always be true: one invariant a file, judged by what a world reports.

A driver makes `Checks(everything())`, reports to it what it does (observations.py), and hears of the first
broken promise as a `Violation`. base.py says how.
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
    """All checkers. `books`: of the controller, if it is at hand. `pool`: see `Transfers`."""
    world: list[Checker] = [
        GangAtomicity(), OneOrder(), DoubleBooking(), Memory(), Buffers(), RunsEnd(), Epochs(),
        Transfers(pool),
    ]  # fmt: skip
    return [*world, CountersAddUp(controller)] if controller is not None else world


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

"""Checks what must always be true, in any driver. There is one invariant in each file.

A driver makes `Checks(everything())` and reports to it what it does (observations.py). The first invariant that does
not hold raises a `Violation`. base.py says how.
"""

from __future__ import annotations

from . import observations
from .buffer_checker import BufferChecker
from .checker_base import Checker, Checks, Violation
from .counters import CountedMachine, CountersAddUp
from .double_booking import DoubleBooking
from .epochs import Epochs
from .gang_atomicity import GangAtomicity
from .memory import MemoryChecker
from .observations import *
from .one_order import OneOrder
from .programs_told import ProgramsTold
from .runs_end import RunsEnd
from .transfer_checker import TransferChecker


def everything(controller: CountedMachine | None = None, pool: int = 0, short: int = -1) -> list[Checker]:
    """Return all checkers, with those of the counters of `controller` if it is given. `pool`, `short`: see
    `TransferChecker`."""
    checkers: list[Checker] = [
        GangAtomicity(), OneOrder(), DoubleBooking(), MemoryChecker(), BufferChecker(), RunsEnd(), ProgramsTold(),
        Epochs(), TransferChecker(pool, short),
    ]  # fmt: skip
    return [*checkers, CountersAddUp(controller)] if controller is not None else checkers

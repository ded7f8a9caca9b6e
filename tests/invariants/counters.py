"""Checks the controller's counters: each equals a recount from the facts, and all are zero when nothing is left.

The other checkers use observations; this one reads the controller. It needs (see `CountedMachine`) the counters with
a recount of each, the levels of the memory ledger, and what is left when nothing is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from core.model import Spans, spans

from .checker_base import Checker
from .observations import Observation


class LedgerCounters(Protocol):
    def counters(self) -> Iterable[tuple[Spans, int, int, int]]:
        """Return (devices, resident, committed with scratch, capacity), in bytes on each of the devices."""


class CountedMachine(Protocol):
    @property
    def ledger(self) -> LedgerCounters: ...

    def left(self) -> dict[str, int]:
        """Return the number of "runs" that have not ended, of "operations" in orders, and of "buffers" with holders."""

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """Return (name of a counter, its value, the value that a recount gives).

        For example ("references of buffer 7", its count, the number of its holders).
        """


class CountersAddUp(Checker):
    name = "counters"

    def __init__(self, controller: CountedMachine) -> None:
        self._controller = controller

    def saw(self, seen: Observation, now: int) -> None:
        """Do nothing: this checker needs no observations."""

    def look(self, now: int) -> None:
        for what, kept, recounted in self._controller.audit():
            if kept != recounted:
                self.fail(f"{what}: the counter says {kept}, a recount gives {recounted}")
        for devices, resident, committed, capacity in self._controller.ledger.counters():
            if not 0 <= resident <= committed <= capacity:
                self.fail(
                    f"devices {spans.text(devices)}: {resident} bytes resident, {committed} committed,"
                    f" of {capacity}; each should be at most the next"
                )

    def at_rest(self, now: int) -> None:
        self.look(now)
        left = self._controller.left()
        for what in ("runs", "operations"):
            if left[what]:
                self.fail(f"{left[what]} {what} are left, though nothing is under way")
        if left["buffers"]:
            return
        for devices, resident, committed, _ in self._controller.ledger.counters():
            if resident or committed:
                self.fail(
                    f"devices {spans.text(devices)}: {resident} bytes resident and {committed} committed,"
                    " though no buffer is alive"
                )

"""The controller's counters add up: each is what a recount gives, and all are zero in the end.

The other checkers judge the world; this one reads a machine. It wants of it (see `Counted`): counters with a recount
to hold against each, the memory ledger's levels, and what is left when nothing is under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..model import Spans, spans
from .base import Checker
from .observations import Observation


class Ledger(Protocol):
    def counters(self) -> Iterable[tuple[Spans, int, int, int]]:
        """Return (devices, resident, committed with scratch, capacity), in bytes on each of the devices."""


class Counted(Protocol):
    @property
    def ledger(self) -> Ledger: ...

    def left(self) -> dict[str, int]:
        """How many "runs" are not over, "operations" are in an island's order, and "buffers" anybody holds."""

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """(what, as it is kept, counted anew from the facts), say ("references of buffer 7", its count, its
        holders) and ("steps of run 3 in an order", its counter, its operations)."""


class CountersAddUp(Checker):
    name = "counters"

    def __init__(self, controller: Counted) -> None:
        self._controller = controller

    def saw(self, seen: Observation, now: int) -> None:
        """Do nothing: this checker needs no observations."""

    def look(self, now: int) -> None:
        for what, kept, recounted in self._controller.audit():
            if kept != recounted:
                self.fail(f"{what}: its counter says {kept}, a count gives {recounted}")
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

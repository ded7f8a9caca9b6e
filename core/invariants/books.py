"""Checks the controller's counters: each equals a recount from the facts, and is zero when nothing is left.

The other checkers use observations; this one reads the controller. It needs (see `Books`) the counters with a recount
of each, the levels of the memory ledger, and the number of buffers that are alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol

from ..model import Spans, spans
from .base import Checker
from .observations import Observation


class Ledger(Protocol):
    def counters(self) -> Iterable[tuple[Spans, int, int, int]]:
        """Return (devices, resident, committed with scratch, capacity), in bytes on each of the devices."""


class Books(Protocol):
    @property
    def ledger(self) -> Ledger: ...

    @property
    def runs(self) -> Sized:
        """The runs that have not ended."""

    @property
    def flights(self) -> Sized:
        """The steps that are in an island's order and have not ended."""

    def alive(self) -> int:
        """Return the number of logical buffers that take device memory, or will."""

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """Return (name of a counter, its value, the value that a recount gives).

        For example ("references of buffer 7", its count, the number of its holders).
        """


class BooksAddUp(Checker):
    name = "books"

    def __init__(self, books: Books) -> None:
        self._books = books

    def saw(self, seen: Observation, now: int) -> None:
        """Do nothing: this checker needs no observations."""

    def look(self, now: int) -> None:
        for what, kept, recounted in self._books.audit():
            if kept != recounted:
                self.fail(f"{what}: the counter says {kept}, a recount gives {recounted}")
        for devices, resident, committed, capacity in self._books.ledger.counters():
            if not 0 <= resident <= committed <= capacity:
                self.fail(
                    f"devices {spans.text(devices)}: {resident} bytes resident, {committed} committed,"
                    f" of {capacity}; each should be at most the next"
                )

    def at_rest(self, now: int) -> None:
        self.look(now)
        for what, number in (("runs", len(self._books.runs)), ("flights", len(self._books.flights))):
            if number:
                self.fail(f"{number} {what} are left, though nothing is under way")
        if self._books.alive():
            return
        for devices, resident, committed, _ in self._books.ledger.counters():
            if resident or committed:
                self.fail(
                    f"devices {spans.text(devices)}: {resident} bytes resident and {committed} committed,"
                    " though no buffer is alive"
                )

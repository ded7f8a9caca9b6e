"""The controller's own books add up: what it counts as it goes is a recount gives, and zero in the end.

The other checkers judge the world; this one reads a machine. It wants of it (see `Books`): counters with a
recount to hold against each, the memory ledger's levels, and what is alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol

from ..model import Spans, spans
from .base import Checker
from .observations import Observation


class Ledger(Protocol):
    def counters(self) -> Iterable[tuple[Spans, int, int, int]]:
        """(devices, resident, committed with scratch, capacity): bytes on every one of the devices."""


class Books(Protocol):
    @property
    def ledger(self) -> Ledger: ...

    @property
    def runs(self) -> Sized:
        """Runs that are not over."""

    @property
    def flights(self) -> Sized:
        """What is in an island's order and not over."""

    def alive(self) -> int:
        """Logical buffers that take device memory, or will."""

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """(what, as it is kept, counted anew from the facts), say ("references of buffer 7", its count, its
        holders) and ("steps of run 3 in an order", its counter, its flights)."""


class BooksAddUp(Checker):
    name = "books"

    def __init__(self, books: Books) -> None:
        self._books = books

    def saw(self, seen: Observation, now: int) -> None:
        """Nothing that the world reports concerns it."""

    def look(self, now: int) -> None:
        for what, kept, recounted in self._books.audit():
            if kept != recounted:
                self.fail(f"{what}: the books say {kept}, a count gives {recounted}")
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

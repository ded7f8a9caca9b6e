"""Checks the trace's rows of reservations against the schedulers, after every event; and in the end the part of time
that `utilization` calls reserved against those rows.

A row is open if and only if a policy keeps just these devices free, for this client, at this moment. So a row begins
and ends in the event with which that began and ended, and never changes afterwards. Neighbours: `checks` has checkers
of other state of the controller; `play` says what is wrong by the name of the checker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.model import Cluster, spans
from core.record import LOST, Trace
from tests.invariants import Checker, Observation

Row = tuple[int, int, int, int]  # place, client, since, until
CLOSE = 1e-6  # fractions that differ by less are equal


class ReservedRows(Checker):
    name = "reserved rows"

    def __init__(self, controller: Any, cluster: Cluster) -> None:
        self._controller = controller
        self._cluster = cluster
        self._trace: Trace | None = None
        self._rows: list[Row] = []
        self._looked = 0

    def saw(self, seen: Observation, now: int) -> None:
        """Do nothing: `look` checks."""

    def look(self, now: int) -> None:
        trace: Trace = self._controller.tracing.trace
        if trace is not self._trace:  # another controller has none of the earlier one's
            self._trace, self._rows = trace, []
        kept = {
            (each.devices, each.client)
            for island in self._controller.state.islands
            for each in island.scheduler.reserved
        }
        if kept or any(row[3] < 0 for row in self._rows) or len(self._rows) < len(trace.reservations):
            self._compare(trace, kept, now)
        self._looked = now

    def _compare(self, trace: Trace, kept: set[Any], now: int) -> None:
        before = self._rows
        self._rows = rows = [
            (row["place"], row["client"], row["since"], row["until"]) for row in trace.reservations.rows()
        ]
        opened = [(trace.places[row[0]].devices, row[1]) for row in rows if row[3] < 0 and row[1] != LOST]
        if len(opened) != len(kept) or set(opened) != kept:
            self.fail(f"rows without an end: {_text(opened)}; the policies keep {_text(sorted(kept))}")
        lost = [trace.places[row[0]].devices for row in rows if row[3] < 0 and row[1] == LOST]
        away = [device for devices in lost for device in spans.items(devices)]
        if len(set(away)) < len(away) or any(map(self._controller.resources.usable, away)):
            self.fail(f"lost, and there, or lost twice: {away}")
        for old, new in zip(before, rows, strict=False):
            ends = self._looked <= new[3] <= now
            if new[:3] != old[:3] or (new[3] != old[3] and not (old[3] < 0 and ends)):
                self.fail(f"row {old} of the time {self._looked} has become {new} by {now}")
        for row in rows[len(before) :]:
            if not self._looked <= row[2] <= now or 0 <= row[3] < row[2]:
                self.fail(f"a new row begins between {self._looked} and {now}: {row}")

    def at_rest(self, now: int) -> None:
        """Nothing is under way."""
        self.look(now)
        if self._rows and self._trace is not None:
            shown, counted = (shown_fraction(self._trace, self._cluster), counted_fraction(self._trace, self._cluster))
            if abs(shown - counted) > CLOSE:
                self.fail(f"{shown:.9f} of the time is reserved, but rows and gangs say {counted:.9f}")


def shown_fraction(trace: Trace, cluster: Cluster) -> float:
    from seaway.trace import Trace as UserTrace

    found = UserTrace(trace, cluster).utilization("total")
    return float(found["reserved_fraction"].iloc[0]) if len(found) else 0.0


def counted_fraction(trace: Trace, cluster: Cluster) -> float:
    """The same, counted device by device: in how much of the time it was kept free, and no gang had it."""
    from seaway.trace import Trace as UserTrace

    told = UserTrace(trace, cluster)
    low, high = told.span
    first = told.origin
    gangs: dict[int, list[tuple[int, int]]] = {}
    table = told.intervals()
    for device, start, end in zip(table["device"], table["started_us"], table["ended_us"], strict=True):
        gangs.setdefault(int(device), []).append((round(start * 1_000), round(end * 1_000)))
    total = 0
    for row in trace.reservations.rows():
        if row["client"] == LOST:
            continue
        since, until = max(low, row["since"] - first), min(high, row["until"] - first)
        for device in spans.items(trace.places[row["place"]].devices):
            parts = [(max(since, a), min(until, b)) for a, b in gangs.get(device, ())]
            total += max(0, until - since) - sum(b - a for a, b in parts if a < b)
    return total / max(1, cluster.devices * (high - low))


def _text(kept: Sequence[tuple[Any, int]]) -> str:
    return ", ".join(f"{spans.text(devices)} for {client}" for devices, client in kept) or "none"

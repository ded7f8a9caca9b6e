"""Says when a host reports the ends of its gangs: at once, or several together. Both drivers use this one rule.

A report wakes every process on its way: the host's, its parents', the controller's, the client's. While the devices
have much to do, nobody waits for the single report, so those of `APART` go together. Half of what lately was under way
is always worth a report: so the devices never run dry for want of one, and a host with one gang under way reports its
end at once. Neighbours: backend's `end_reports`, sim's `message_batching`.
"""

from __future__ import annotations

from collections.abc import Iterable

MANY = 512  # messages that are written together, at most
BATCH = 1 << 20  # bytes that are written together; more follow in the next turn
APART = 4_000_000  # nanoseconds between two reports, unless half of what lately was under way has ended


class ReportPacer:
    """The pace of one host's reports."""

    __slots__ = ("_ended", "_last", "_under_way", "_window")

    def __init__(self) -> None:
        self._under_way: set[int] = set()  # gangs that were launched and have not ended
        self._ended = 0  # gangs that have, without a report
        self._last = -APART
        self._window = 0  # the most of both together, lately

    def launched(self, seq: int) -> None:
        self._under_way.add(seq)
        self._window = max(self._window, self._ended + len(self._under_way))

    def abandoned(self, seqs: Iterable[int]) -> None:
        self._under_way.difference_update(seqs)

    def ended(self, seq: int) -> None:
        self._under_way.discard(seq)
        self._ended += 1

    def due(self, now: int) -> int:
        """When to report the gangs that have ended."""
        if not self._under_way or 2 * self._ended >= self._window:
            return now
        return max(now, self._last + APART)

    def reported(self, now: int) -> None:
        """All that have ended are reported now."""
        self._last, self._ended = now, 0
        self._window -= self._window // 4
        self._window = max(self._window, len(self._under_way))

"""Says when a host reports the ends of its gangs: at once, or several together. Both drivers use this one rule.

A report wakes every process on its way: the host's, its parents', the controller's, the client's. While the devices
have much to do, nobody waits for the single report, so those of `APART` go together. Half of what was under way having
ended is always worth a report: so the devices never run dry for want of one, and a host with one gang under way reports
its end at once. Neighbours: backend's `agent`, sim's `message_batching`.
"""

from __future__ import annotations

MANY = 512  # messages that are written together, at most
BATCH = 1 << 20  # bytes that are written together; more follow in the next turn
APART = 4_000_000  # nanoseconds between two reports, unless half of what was under way has ended


class ReportPacer:
    """The pace of one host's reports."""

    __slots__ = ("_last", "_window")

    def __init__(self) -> None:
        self._last = -APART
        self._window = 0  # the most gangs that lately were under way, or had ended without a report

    def due(self, now: int, ended: int, under_way: int) -> int:
        """When to report that so many gangs have ended, while so many are still under way."""
        self._window = max(self._window, ended + under_way)
        if not under_way or 2 * ended >= self._window:
            return now
        return max(now, self._last + APART)

    def reported(self, now: int) -> None:
        self._last = now
        self._window -= self._window // 4

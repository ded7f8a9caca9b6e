"""What a client's runs and puts wait for, as the controller said last, and since when: for a user who asks why.

Neighbours: `client` keeps it up to date. A put is named by the negative of its buffer, as in `messages.Waiting`.
"""

from __future__ import annotations

S = 1_000_000_000


class Awaited:
    def __init__(self) -> None:
        self._by: dict[int, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._by)

    def said(self, what: int, reason: str, since: int) -> None:
        """reason: "" is nothing any more."""
        if reason:
            self._by[what] = reason, since
        else:
            self.over(what)

    def over(self, what: int) -> None:
        self._by.pop(what, None)

    def clear(self) -> None:
        self._by.clear()

    def words(self, now: int) -> str:
        """Of the longest wait; "" if nothing is known to wait."""
        if not self._by:
            return ""
        reason, since = min(self._by.values(), key=lambda each: each[1])
        return f"{reason}, {max(0, now - since) // S} s"

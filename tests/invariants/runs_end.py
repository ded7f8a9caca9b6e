"""Checks that every run that was submitted ends, and that its client is told so exactly once, unless it is gone."""

from __future__ import annotations

from .checker_base import Checker
from .observations import ClientLost, Observation, RunEndSeen, RunSubmitted


class RunsEnd(Checker):
    name = "every run ends"
    sees = (RunSubmitted, RunEndSeen, ClientLost)

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}  # (client, run) -> when it was submitted
        self._ended: dict[tuple[int, int], RunEndSeen] = {}

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case RunSubmitted(client=client, run=run):
                if (client, run) in self._open or (client, run) in self._ended:
                    self.fail(f"run {run} of client {client} was taken twice")
                self._open[client, run] = now
            case RunEndSeen(client=client, run=run):
                earlier = self._ended.get((client, run))
                if earlier is not None:
                    how = f"with {earlier.blame}" if earlier.blame else "well"
                    self.fail(f"run {run} of client {client} ended twice; the first time {how}")
                if (client, run) not in self._open:
                    self.fail(f"run {run} of client {client} ended, but was never submitted")
                del self._open[client, run]
                self._ended[client, run] = seen
            case ClientLost(client=lost):
                self._open = {key: since for key, since in self._open.items() if key[0] != lost}
            case _:
                pass

    def at_rest(self, now: int) -> None:
        for (client, run), since in self._open.items():
            self.fail(f"run {run} of client {client}, submitted at {since}, never ended ({len(self._open)} such)")

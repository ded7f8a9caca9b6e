"""Which runs the user waited for before each call, and when each wait could end: told to core with the next call.

A recorded session needs this to be simulated under other settings: it shows which calls depend on which runs. It is
sent with a call, so it needs no message and no lock of its own. Neighbours: `caller` notes waits and makes calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.client import Client

if TYPE_CHECKING:
    from .arrays import Run


class WaitedRuns:
    def __init__(self) -> None:
        self.until: dict[int, tuple[Run, int]] = {}  # by the run's number

    def note(self, run: Run | None, at: int) -> None:
        """The user needed this run's result, which was there at `at`, even if it was read later."""
        if run is not None:
            self.until[run.number] = run, max(at, self.until.get(run.number, (run, -1))[1])

    def tell(self, client: Client, ahead: int) -> None:
        """Tell core of those that have ended. `ahead`: how much later core's clock is than the session's."""
        for number, (run, at) in list(self.until.items()):
            if run.ended_at >= 0:
                del self.until[number]
                client.waited(number, ahead + max(at, run.ended_at))

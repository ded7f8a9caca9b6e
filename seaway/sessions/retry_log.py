"""What the log says of runs that the cluster failed and that run again: one line for all that one failure has hit.

A host that is lost fails every run under way there, within milliseconds, and they run again a tenth of a second later.
So a line is kept back until then, and says how many there are. Neighbours: `caller` tells it; `core.client.retries`
decides what runs again, and when.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from core.protocol import Blame

from ..wording import plural

if TYPE_CHECKING:
    from .arrays import Run

TOGETHER = 100_000_000  # nanoseconds in which runs fail together; the first of them runs again after as long

log = logging.getLogger("seaway")


class RetryLog:
    def __init__(self, client: str) -> None:
        self._client = client
        self.runs = 0  # that have not been said
        self._since = 0
        self._first = ""
        self._blame: Blame | None = None

    def again(self, run: Run, blame: Blame, now: int) -> None:
        """This run failed, and will run again."""
        self.due(now)
        if not self.runs:
            self._since, self._first, self._blame = now, repr(run), blame
        self.runs += 1

    def due(self, now: int) -> None:
        """Say what has been kept back, if it is time."""
        if self.runs and now - self._since >= TOGETHER:
            self.say()

    def say(self) -> None:
        """Say what has been kept back."""
        count, self.runs = self.runs, 0
        if count == 1:
            log.warning("client %r: %s failed, and runs again: %s", self._client, self._first, self._blame)
        elif count:
            log.warning(
                "client %r: %s failed, and run again; the first, %s: %s",
                self._client, plural(count, "run"), self._first, self._blame,
            )  # fmt: skip

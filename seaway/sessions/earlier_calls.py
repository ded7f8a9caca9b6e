"""What has become known of a client's calls after they returned, and that its user must hear: failures, and warnings.

Neighbours: `caller` says which runs have failed; `session` looks back at its end, and `api.checkpoints` at each call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.protocol import Blame

from ..errors import run_error
from ..wording import plural

if TYPE_CHECKING:
    from .arrays import Run

TOGETHER = 100_000_000  # nanoseconds in which runs fail together; the first of them runs again after as long
log = logging.getLogger("seaway")


class EarlierCalls:
    """`notices`: each tells the user something as soon as it is known, and returns whether it is."""

    def __init__(self, client: str) -> None:
        self._client = client
        self.failed: list[Run] = []
        self.notices: list[Callable[[], bool]] = []

    def failure(self, run: Run) -> None:
        self.failed.append(run)
        if run._must_be_seen:
            log.warning("client %r: %r has failed: %s", self._client, run.program, run.blame)

    def look_back(self) -> None:
        """Say what has become known. Raise the error of a run that must not fail unseen."""
        for notice in self.notices.copy():
            if notice():
                self.notices.remove(notice)
        failed = [run for run in self.failed if run._must_be_seen and not run._looked_at]
        for run in failed:
            run._looked_at = True
        if failed and failed[0].blame is not None:
            error = run_error(failed[0].blame)
            more = f", and of {plural(len(failed) - 1, 'run')} after it" if len(failed) > 1 else ""
            error.add_note(f"This is the error of an earlier {failed[0].program!r}{more}: nobody had waited for it.")
            raise error


class RetryLog:
    """What the log says of runs that the cluster failed and that run again: one line for all that one failure has hit.

    A host that is lost fails every run under way there, within milliseconds, and they run again a tenth of a second
    later. So a line is kept back until then, and says how many there are."""

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

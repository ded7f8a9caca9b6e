"""Holds effects back: an effect of the executor happens when the last of its causes has, and never otherwise.

This is why an executor is confluent. Causes are chosen when a step *arrives in the ordered stream*, from that
stream alone. What has happened meanwhile decides only how long the effect still has to wait, not whether it
happens or what it is.

`live` is the one question about the past that may be asked: could this still be going on, as far as the stream
tells? The answer comes from the stream (`settled`), not from what has happened here, so it does not depend on how
connections interleave. A step that was settled before a message was written has ended before the message came.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from ..protocol import Cause
from .host_state import Causes, HeldEffect, HostState


class PendingCauses:
    """A cause is *pending* from when it is expected until it happens; any other has happened, or never will."""

    def __init__(self, state: HostState) -> None:
        self._state = state
        self._pending = state.pending
        self._due: deque[HeldEffect] = deque()
        self._working = False

    def expect(self, cause: Cause) -> None:
        self._pending[cause] = None

    def live(self, seq: int, cause: Cause) -> bool:
        return seq >= self._state.settled or cause in self._pending

    def when(self, causes: Causes, act: Callable[[Any, Causes], None], subject: Any) -> None:
        """Call `act(subject, causes)` once none of them is pending any more; at once if none is."""
        pending = self._pending
        held: HeldEffect | None = None
        for cause in causes:
            if cause in pending:
                if held is None:
                    held = HeldEffect(causes, 0, act, subject)
                held.missing += 1
                waiting = pending[cause]
                if waiting is None:
                    pending[cause] = [held]
                else:
                    waiting.append(held)
        if held is None:
            act(subject, causes)

    def happen(self, cause: Cause) -> None:
        waiting = self._pending.pop(cause, None)
        if waiting is None:
            return
        due = self._due
        for held in waiting:
            held.missing -= 1
            if not held.missing:
                due.append(held)
        if self._working or not due:
            return  # the loop below is under way, further out: a thousand held gangs are no thousand frames
        self._working = True
        while due:
            held = due.popleft()
            held.act(held.subject, held.causes)
        self._working = False

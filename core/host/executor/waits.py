"""Who waits for what: an effect of the executor happens when the last of its causes has, and never otherwise.

This is why an executor is confluent. Causes are chosen when a step *arrives in the ordered stream*, from
that stream alone; what has happened meanwhile decides only how long the effect still has to wait, not
whether or what it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...protocol import Cause

Causes = tuple[Cause, ...]
Act = Callable[
    [Causes], None
]  # a bound method or a partial of one, no closure: a copy of the executor has its own


class Task:
    __slots__ = ("act", "causes", "missing")

    def __init__(self, causes: Causes, missing: int, act: Act) -> None:
        self.causes = causes
        self.missing = missing
        self.act = act


class Waits:
    """A cause is *pending* from when it is expected until it happens; any other has happened, or never
    will."""

    def __init__(self) -> None:
        self._pending: dict[Cause, list[Task] | None] = {}
        self._due: deque[Task] = deque()
        self._working = False

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, cause: Cause) -> None:
        self._pending[cause] = None

    def pending(self, cause: Cause) -> bool:
        return cause in self._pending

    def when(self, causes: Causes, act: Act) -> None:
        """Call `act(causes)` once none of them is pending any more; at once if none is."""
        missing = [cause for cause in causes if cause in self._pending]
        if not missing:
            act(causes)
            return
        task = Task(causes, len(missing), act)
        for cause in missing:
            waiting = self._pending[cause]
            if waiting is None:
                self._pending[cause] = [task]
            else:
                waiting.append(task)

    def happen(self, cause: Cause) -> None:
        tasks = self._pending.pop(cause, None)
        if tasks is None:
            return
        for task in tasks:
            task.missing -= 1
            if not task.missing:
                self._due.append(task)
        if self._working:
            return  # the loop below is under way, further out: a thousand held gangs are no thousand frames
        self._working = True
        while self._due:
            task = self._due.popleft()
            task.act(task.causes)
        self._working = False

"""The order of a session's calls: each has its effect when all before it have had theirs.

A call is a function that returns whether it could be made. If not, it waits for room at core's client, or for an
array that is still on its way; and so do those behind it, for one of them may take over what it reads. Whoever brings
about what a call waits for calls `go_on`. Neighbour: `cluster_calls`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Call = Callable[[], bool]
MOST = 64  # calls that wait, before the session is to make no more


class CallOrder:
    def __init__(self) -> None:
        self._waiting: deque[Call] = deque()
        self._ahead: deque[Call] = deque()
        self._resume: Callable[[], None] | None = None
        self._at_it = False

    def __len__(self) -> int:
        return len(self._waiting)

    def do(self, call: Call) -> None:
        if self._waiting or self._ahead or self._at_it or not self._made(call):
            self._waiting.append(call)
        elif self._waiting or self._ahead:  # this call has led to others
            self.go_on()

    def ahead(self, call: Call) -> None:
        """A call that waits for no array: others may wait for what it makes."""
        self._ahead.append(call)
        self.go_on()

    def _made(self, call: Call) -> bool:
        self._at_it = True
        try:
            return call()
        finally:
            self._at_it = False

    def go_on(self) -> None:
        if self._at_it:
            return
        while calls := self._ahead or self._waiting:
            if not self._made(calls[0]):
                break
            calls.popleft()
        resume = self._resume
        if resume is not None and len(self._waiting) < MOST // 2:
            self._resume = None
            resume()

    def crowded(self, resume: Callable[[], None]) -> bool:
        if len(self._waiting) < MOST:
            return False
        self._resume = resume
        return True

    def clear(self) -> None:
        self._waiting.clear()
        self._ahead.clear()
        self._resume = None

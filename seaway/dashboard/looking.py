"""Where a page's numbers come from: what any source does, a session of this process, and a trace that is over.

    source.look(Look(identity, cursor)) --> LiveLook        # any thread may ask; Unavailable if nothing answers

Neighbours: `controller_source`, `log_source` and `seaway.trace.trace_source`, other sources; `page_server`, which asks;
`core.record.looks`, the data.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from core.record import LiveLook, LiveView, Look, Trace, increment

from .. import machines

MOST_GANGS = 400_000  # of what is over that a page takes: the latest


class Unavailable(Exception):
    """Nothing answers now, which may pass; the text says what is known of why."""


class LiveSource(ABC):
    """kind: "cluster", "simulation", "trace" or "log". began: when its trace begins, by the trace's clock."""

    kind: str
    title: str
    islands: list[machines.TraceIsland]
    began = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return False

    @abstractmethod
    def look(self, request: Look) -> LiveLook: ...

    def at(self, time: int) -> LiveView | None:
        """What the controller looked like at a moment, with the reasons of all that waited; None: nobody knows."""
        return None

    def close(self) -> None:  # noqa: B027 - most sources have nothing to end
        """No page asks any more."""


class RunningSession(LiveSource):
    """A session of this process. `look` is called when the session is between two events: `visit` sees to that."""

    def __init__(
        self, kind: str, title: str, setup: Any, *, visit: Callable[[Callable[[], LiveLook]], LiveLook],
        look: Callable[[Look], LiveLook], over: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.kind, self.title, self.islands = kind, title, machines.of_setup(setup).islands
        self._visit, self._look, self._over = visit, look, over

    @property
    def over(self) -> bool:
        return self._over()

    def look(self, request: Look) -> LiveLook:
        found = self._visit(lambda: self._look(request))
        self.began = found.began
        return found


class RecordedSource(LiveSource):
    """A trace that is over. `ends`: its last time, by its own clock."""

    over = True

    def __init__(
        self, kind: str, title: str, trace: Trace, islands: list[machines.TraceIsland], began: int,
        ends: Callable[[], int],
    ) -> None:  # fmt: skip
        self.kind, self.title, self.islands, self.began = kind, title, islands, began
        self._trace, self._ends = trace, ends

    def look(self, request: Look) -> LiveLook:
        cursor = msgspec.structs.replace(request.cursor, most=MOST_GANGS)
        found = increment(self._trace, cursor)
        return LiveLook(f"{self.kind}/{self.title}", self.began, self._ends(), None, found)

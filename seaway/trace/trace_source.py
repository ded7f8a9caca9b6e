"""A trace as the source of a page: what `trace.live()` and `seaway dashboard FOLDER` show.

Neighbours: `seaway.dashboard.looking`, what a source does; `trace`, whose rows these are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.record import LiveLook, LiveView, Look, increment

from ..dashboard import MOST_GANGS
from ..machines import TraceIsland

if TYPE_CHECKING:
    from .trace import Trace


class TraceSource:
    kind, over = "trace", True

    def __init__(self, trace: Trace, title: str) -> None:
        self._trace, self.title = trace, title
        self._identity, self.began = f"trace/{title}", trace.origin
        self.islands: list[TraceIsland] = trace.machines.islands

    @classmethod
    def opened(cls, folder: Path) -> TraceSource:
        from .trace import Trace

        trace = Trace.load(folder)
        return cls(trace, f"{folder}: {trace.machines.describe()}")

    def look(self, request: Look) -> LiveLook:
        cursor = msgspec.structs.replace(request.cursor, most=MOST_GANGS)
        found = increment(self._trace.core, cursor)
        began = self.began
        return LiveLook(self._identity, began, began + self._trace.facts().horizon, None, found)

    def at(self, time: int) -> LiveView | None:
        return None

    def close(self) -> None:
        """There is nothing to end."""

"""A trace as the source of a page: what `trace.live()` and `seaway dashboard FOLDER` show.

Neighbours: `seaway.dashboard.looking`, what a source does; `trace`, whose rows these are.
"""

from __future__ import annotations

from pathlib import Path

from ..dashboard import RecordedSource
from .trace import Trace


class TraceSource(RecordedSource):
    def __init__(self, trace: Trace, title: str) -> None:
        ends = lambda: trace.origin + trace.facts().horizon  # noqa: E731
        super().__init__("trace", title, trace.core, trace.machines.islands, trace.origin, ends)

    @classmethod
    def opened(cls, folder: Path) -> TraceSource:
        trace = Trace.load(folder)
        return cls(trace, f"{folder}: {trace.machines.describe()}")

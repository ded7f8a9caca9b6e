"""A page in the browser that shows what goes on: `seaway dashboard`, `sw.simulate(..., live=True)`.

looking        where the numbers come from: what a source is, and a session of this process
controller_source   a controller elsewhere;  recorded: a saved trace, and an event log at any moment of it
columns        numbers as the page takes them: a JSON head and columns of doubles
page_server    a small web server: the page's files for all, numbers for those who have the key
live_page      the page of a session, or of a trace in a notebook
following, recent, terminal   what `seaway top` shows: a reader of a trace, the last seconds, tables (with rich)
static/        the page: HTML, CSS and JavaScript modules, and uPlot, which draws its lines

The server is thin. A browser says what it has of the trace, and gets what is new (`core.record.increments`). All that
is shown follows from that in the browser, so a saved trace and a running cluster are drawn by the same code.
"""

from __future__ import annotations

from .live_page import LivePage
from .looking import LiveSource, RunningSession, Unavailable
from .page_server import PageServer
from .recorded import LogSource, SavedSource

__all__ = [
    "LivePage",
    "LiveSource",
    "LogSource",
    "PageServer",
    "RunningSession",
    "SavedSource",
    "Unavailable",
]

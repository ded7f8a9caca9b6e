"""A page in the browser that shows what goes on: `seaway dashboard`, `sw.simulate(..., live=True)`.

looking        where the numbers come from: what a source is, and a session of this process
controller_source   a controller elsewhere;  log_source: an event log at any moment of it
columns        numbers as the page takes them: a JSON head and columns of doubles
page_server    a small web server: the page's files for all, numbers for those who have the key
page_file      the page as one file that needs no server, with the numbers inside
live_page      the page for those who hold it in Python: `session.live()`, `trace.live()`
recent, terminal   what `seaway top` shows: the last seconds of a trace, tables (with rich)
static/        the page: HTML, CSS and JavaScript modules, and uPlot, which draws its lines

The server is thin. A browser says what it has of the trace, and gets what is new (`core.record.increments`). All that
is shown follows from that in the browser, so a saved trace and a running cluster are drawn by the same code. A trace is
a source of `seaway.trace`, which stands above.
"""

from .columns import TIMES
from .live_page import LivePage, TracePage
from .log_source import LogSource
from .looking import LiveSource, RecordedSource, RunningSession, Unavailable
from .page_server import PageServer

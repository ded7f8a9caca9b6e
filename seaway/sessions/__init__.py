"""Sessions and their clients: calls become core's, and what core says becomes arrays that are ready.

session    what a user opens;  ambient: the session or client that a call is made in
caller     a client: it submits, fetches, waits
arrays     arrays as futures, and runs;  arguments: what a call is given
port       what a session needs of whoever runs it: `simulated/` or `connected/`
deadlines, replaced   until when runs are due;  a policy that failed is told of
"""

from __future__ import annotations

from . import ambient
from .arguments import checked_retries
from .arrays import Array, Run, block_until_ready, get
from .caller import Caller
from .deadlines import deadline
from .replaced import text_of
from .session import Dispatch, Session, Task, client, current_session, now, sleep, spawn

__all__ = [
    "Array",
    "Caller",
    "Dispatch",
    "Run",
    "Session",
    "Task",
    "ambient",
    "block_until_ready",
    "checked_retries",
    "client",
    "current_session",
    "deadline",
    "get",
    "now",
    "sleep",
    "spawn",
    "text_of",
]

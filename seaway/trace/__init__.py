"""Traces for users: core's record of what happened goes in; tables, pictures and files come out.

Simulated and real runs are treated alike.
"""

from . import times
from .hosts import joined
from .machines import of_setup
from .overlay import Overlay
from .storage import NotATrace
from .trace import Trace

__all__ = [
    "NotATrace",
    "Overlay",
    "Trace",
    "joined",
    "of_setup",
    "times",
]

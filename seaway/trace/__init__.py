"""What a run looked like: tables, pictures and files of a trace, the same for a simulated run and a real one."""

from . import times
from .hosts import joined
from .machines import of_setup
from .overlay import Overlay
from .trace import Trace

__all__ = [
    "Overlay",
    "Trace",
    "joined",
    "of_setup",
    "times",
]

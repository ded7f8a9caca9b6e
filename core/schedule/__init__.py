"""Which gang enters an island's order next.

scheduler    one an island: window, work conservation, passing, late inputs
contention   which gangs compete for which devices
policy/      fifo, stride, priority, ...: a guest that picks among what may enter
"""

from __future__ import annotations

from .contention import Window
from .scheduler import Early, Scheduler, Ticket, Wait

__all__ = [
    "Early",
    "Scheduler",
    "Ticket",
    "Wait",
    "Window",
]

"""Decides which gang enters an island's order next.

scheduler    one for each island: offers the gangs that may enter to the policy, one choice at a time
contention   which gangs compete for which devices
policy/      fifo, stride, priority, ...: picks one of the gangs that may enter
"""

from __future__ import annotations

from .contention import Window
from .scheduler import EarlyEntry, GangQueue, Scheduler, Ticket, WaitingGang

__all__ = [
    "EarlyEntry",
    "GangQueue",
    "Scheduler",
    "Ticket",
    "WaitingGang",
    "Window",
]

"""What an agent needs of devices, and devices that only take time.

interface   what an agent calls, and what devices tell it: JAX's are in `backend.pjrt`
timed       devices that take the time they are told, without JAX;  alarms: calls at a time, finer than a loop's
gang_times  when a host's gangs were enqueued and ended, kept there for those who ask
"""

from __future__ import annotations

from . import gang_times
from .gang_times import ROOM, Stamps, Taken, fetched
from .interface import About, Array, Devices, Index, Post, World
from .timed import TimedDevices

__all__ = [
    "ROOM",
    "About",
    "Array",
    "Devices",
    "Index",
    "Post",
    "Stamps",
    "Taken",
    "TimedDevices",
    "World",
    "fetched",
    "gang_times",
]

"""The interface of an agent's devices, and an implementation that only takes time.

interface   what an agent calls, and the events that devices post; the implementation for JAX is in `backend.pjrt`;
            what accelerators this machine has, before an agent has started
timed       devices that take the time they are told, without JAX
gang_times  when a host's gangs were enqueued and ended, kept there and fetched on request
"""

from . import gang_times
from .gang_times import ROOM, GangTimes, Taken, fetched
from .interface import Array, DeviceAbout, Devices, Index, Post, WorldSpec, accelerators_here
from .timed import TimedDevices

"""The devices of the process itself, by its own JAX.

local_devices      arrays and executables of JAX, behind the protocol of `session_devices`; local_stages: MPMD programs
kept_executables   what was compiled for one session and is there for the next
local_files        arrays to files, and back; local_platform: what devices there are

Neighbours: `programs` compiles; `server` starts it.
"""

from .local_devices import LocalDevices, on_loop

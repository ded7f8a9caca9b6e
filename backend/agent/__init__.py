"""A host as a process: its machine's commands carried to devices, and what devices say back.

agent       commands become launches, transfers and compilations
agent_cli   its command line, `python -m backend.agent.agent_cli`
device_log  what devices were told and a node sent, written down for parity
tpu         a host's place in a TPU slice;  malloc: freed memory is kept for the gangs that come next
"""

from __future__ import annotations

from . import device_log
from .malloc import keep_what_is_freed

__all__ = [
    "device_log",
    "keep_what_is_freed",
]

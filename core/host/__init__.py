"""One host as a machine: its island's stream comes in; launches, transfers and reports go out.

machine      Host: executor, relay and transfer put together
executor/    does what the stream says, in that order
"""

from __future__ import annotations

from .machine import Host

__all__ = [
    "Host",
]

"""The executor, one a host: it does what its island's ordered stream says, in that order, and says when it
is done.

Start with `machine.Executor`. Rooms: `queue` launches gangs, `moves` opens the halves of transfers, `codes`
compiles, `shards` knows when buffers are here and when they are free, `waits` holds back every effect until
the last of its causes, `runs` is what a host makes of a plan, `desk` is what they share; `alike` is for an
executor that stands for many hosts.
"""

from __future__ import annotations

from .alike import at
from .codes import code_cause
from .machine import Executor

__all__ = ["Executor", "at", "code_cause"]

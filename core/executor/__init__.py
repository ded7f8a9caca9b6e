"""The executor, one a host: it does what its island's ordered stream says, in that order, and says when it
is done.

Start with `machine.Executor`. Rooms: `queue` launches gangs, `moves` opens the halves of transfers,
`shards` knows when buffers are here and when they are free, `waits` holds back every effect until the last
of its causes, `runs` is what a host makes of a plan, `desk` is what they share.
"""

from __future__ import annotations

from .machine import Executor, code_cause

__all__ = ["Executor", "code_cause"]

"""One host as a machine: orders come in from its island's stream; launches, transfers and reports go out.

How a gang passes through a host:

    Ordered -> machine.Host -> fanout.Relay (is it next, who below needs it?) -> executor.Executor (what does
    each step mean here?) -> launches.LaunchQueue -> Launch      ...      Finished -> the same queue -> Done

Read the modules in this order:

state        what one host knows, as plain data: one record for each gang, move, run and buffer
plans        what a plan means to this host, worked out once when the plan comes
causes       holds an effect back until the last of its causes has happened
buffers      when a buffer's contents are here, whether they are spoilt, and when its memory is free
launches     launches gangs in the order of the stream
moves        opens the two halves of transfers; copies buffers to host memory and back
codes        compiles in the background
reports      what a host says about itself
executor     reads the ordered stream and calls the modules above
machine      Host: executor, relay and transfer machine in one; the face for both drivers
alike        one executor for many hosts that behave alike; for a simulator's cohorts
standing     the only three things that an executor offers to `alike`: twin, stand_for, resting

The functions that matter most: `Host.handle`, `Executor._ordered`, `LaunchQueue.enter`, `LaunchQueue.finished`,
`PendingCauses.when`.

The parts share `state.HostState`, which has no behaviour, and are handed the other parts that they call by name.
`machine` uses `core.fanout` and `core.transfer`; nothing else in core imports this package.
"""

from __future__ import annotations

from .alike import AlikeHosts
from .codes import code_cause
from .executor import Executor
from .machine import Host

__all__ = [
    "AlikeHosts",
    "Executor",
    "Host",
    "code_cause",
]

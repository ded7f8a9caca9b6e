"""One host as a machine: orders come in from its island's stream; launches, transfers and reports go out.

How a gang passes through a host:

    Ordered -> Host.handle -> fanout.Relay.ordered      is it next, and which hosts below need it?
            -> Executor.handle -> LaunchQueue.enter     what does it read, make and free here? -> Launch
    Finished -> Host.handle -> Executor.handle -> LaunchQueue.finished -> Done, FreeBuffer -> Relay.flush -> Reports

Read the modules in this order:

plans           what a plan means to this host, worked out once a plan
host_state      what one host knows, as plain data: one record for each gang, move, run and buffer
causes          holds an effect back until the last of its causes has happened
local_buffers   when a buffer's contents are here, whether they are spoilt, when its memory is free
launches        launches gangs in the order of the stream
host_moves      opens the two halves of transfers; copies buffers to host memory and back
host_codes      compiles in the background
executor        reads the ordered stream and calls the modules above
host            Host: executor, relay and transfer machine in one; both drivers hold one for each host

The functions that matter most: `Host.handle`, `Executor._ordered`, `LaunchQueue.enter`, `LaunchQueue.finished`,
`PendingCauses.when`.

The parts share one `HostState`, which decides nothing, and are handed the other parts that they call, by name. The
package uses `core.fanout` and `core.transfer`; nothing else in core imports it.
"""

from .executor import Executor
from .host import Host
from .host_codes import code_cause
from .host_state import OVER, Causes, HeldEffect, HostGang, HostMove, HostRun, HostState, LocalBuffer
from .plans import HostPlan

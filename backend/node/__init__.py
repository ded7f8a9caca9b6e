"""What every process of a cluster has: streams to other processes, calls beside them, and a synchronised clock.

node        runs one of core's machines in an asyncio loop, with its streams, its timer and its lock
calls       makes and answers the calls beside the streams
near_lane   between machines of one process, without a stream
clock_sync  the offset of each host's clock from the controller's
traffic     counts messages and their contents
"""

from . import calls
from .calls import FULL, INVALID, SERVICE, CallError, Context, RpcCaller, ask, new_server
from .clock_sync import Clocks, HostClock, shifted
from .node import NetworkNode

"""A host as a process: carries out its machine's commands on devices, and feeds the devices' events to the machine.

agent       turns commands into launches, transfers and compilations
agent_cli   its command line, `seaway agent`
direct_address  this machine's own address, for what JAX listens to
device_log  records what devices were told and what a node sent, for parity
end_reports  when ends of gangs are reported
tpu_metadata  a host's place in a TPU slice;  malloc: keeps freed memory for the next gangs
"""

from __future__ import annotations

from . import agent_cli, device_log
from .malloc import keep_what_is_freed

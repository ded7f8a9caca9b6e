"""A host as a process: carries out its machine's commands on devices, and feeds the devices' events to the machine.

agent       turns commands into launches, transfers and compilations
agent_cli   its command line, `seaway agent`
end_reports  when ends of gangs are reported
agent_machine  its place in a TPU slice, its own address, and how it keeps memory
"""

from . import agent_cli
from .agent_machine import keep_what_is_freed

"""The controller as a process.

server          core's controller with its node, its calls and its child processes
controller_cli  its command line, `seaway controller`
cluster_file    the cluster's file, and what is kept of a cluster that has grown
operator_calls  what an operator asks for
registry        agents that enrol, and their host numbers
state_folder    state for the controller's next start;  eventlogs: its event log in a file
world_services  a coordination process for each epoch of an island
policy_loading  a policy by name, `module:NAME` or `FILE.py:NAME`
roles           which calls an account may make
cluster_status  islands, clients and queues as plain data; the same for those who look again and again
"""

from . import controller_cli, eventlogs
from .cluster_status import looked
from .eventlogs import Recording, machine_of, read
from .policy_loading import HELP, policy_from
from .server import Server
from .state_folder import HeldFolder

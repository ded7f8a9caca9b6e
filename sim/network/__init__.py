"""Messages and array contents on their way between processes.

network          control messages: in order on each connection, after latency, serialisation and jitter
bulk, ports      array contents on their way: what ports carry, one after another
held_roads       what the collectives of gangs take of these ports
roads            which ports lie between two devices: links of a torus, network cards and PCIe, uplinks
message_sizes    how many bytes a message has on the wire
"""

from .bulk import CARRIED_BYTES, BulkNetwork, even_rows, number_of, transfer_of
from .message_sizes import TALK, MessageSizes, is_quiet, moves_nothing
from .network import CONTROLLER, Network, Together, about, link_of, rank, report_number
from .ports import Ports, Which
from .roads import Roads, Route, taking, ways_of

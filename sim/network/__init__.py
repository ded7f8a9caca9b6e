"""Messages and array contents on their way between processes.

network          control messages: in order on each connection, after latency, serialisation and jitter
bulk, ports, faces, client_card   array contents on network cards, torus links and PCIe
message_sizes    how many bytes a message has on the wire
sparse_exchange  where the rows of an irregular gang go, when the program does not say
"""

from __future__ import annotations

from .bulk import CARRIED_BYTES, BulkNetwork, Roads, number_of, transfer_of
from .message_sizes import TALK, MessageSizes, is_quiet, moves_nothing
from .network import CONTROLLER, Network, Together, about, link_of, rank, report_number
from .ports import Which
from .sparse_exchange import even_rows

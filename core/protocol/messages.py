"""The messages between clients, the controller and hosts. Start here to read core.

A core machine is `handle(event, now) -> [command, ...]` and `next_wakeup() -> time or None`. It knows no clock, no
network and no device. Two thin drivers, sim/ and backend/, carry out its commands and turn what happens into events.

    client  --Calls-->  controller  --Ordered-->  host (relay -> executor)  --Launch...-->  its devices
    client  <--Notes--  controller  <--Reports--  host (relay <- executor)  <--Finished--   its devices
                     host  <-- Grant / Offer / Chunk / Spoilt / Landed -->  host or client      (data plane)

Words: a *run* is one execution of a program. A *gang* is one execution of one computation on all its devices. An
island's *order* is the one sequence in which all its gangs are enqueued. `seq` is the place of a gang or transfer in
the one global sequence, from which each island's order is cut. A *buffer* is one logical sharded array. Times are
integer nanoseconds. Ids are small integers: the controller counts buffers, runs and seqs, a client chooses its own
names for buffers, runs and programs, and the topology numbers hosts, devices and islands. Where a message lists many
buffers, those with consecutive numbers are one `Range`.
"""

from __future__ import annotations

from .client_messages import *
from .host_messages import *
from .wire import Blame, Wire

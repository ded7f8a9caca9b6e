"""The controller: the one place where what happens on all islands is decided. One module a decision:

controller     the machine: one event in, all that follows decided, one message an island and a client out
clients        sessions and their calls; a breach of the protocol closes that peer
runs           a run's way from the call to its end, which comes exactly once
compilation    plans and their code: which hosts know it, and what is compiled where
admission      memory for a whole run at once, before it is ordered; making room
dispatch       which step may enter an island's order
completion     when a step is over, and settled, and what follows from that
in_flight      what is in an order and not over, and what of it is late
buffer_refs    who holds which buffer, and what is done when nobody does
contents       puts and gets: contents between clients and hosts
membership     which hosts an island has, in epochs: trees, seats, fences
failures       what dies with a host, a device or a launch
recovery       what a restarted controller rebuilds from the hosts and clients that reconnect
stalls         what runs wait for, since when, and what stalls now
watch          every wait has a soft and a hard bound
report_checks  what hosts may report, and what many report at once
policy_news    that a policy failed, and which devices it keeps free
trace_rows     what is recorded for the trace
outbox         what one turn says
state          the tables;  records: their rows;  plan_rows: what is derived from a plan;  config: what may be set
snapshot       what may be shown;  live_view: the same in a size that does not grow with what waits
"""

from __future__ import annotations

from .config import ON_DEVICES, Config
from .controller import Controller
from .live_view import live_view
from .policy_news import KeptDevices
from .snapshot import ClientView, IslandView, OperationView, RunView, Snapshot
from .stalls import Stall
from .watch import Bounds

__all__ = [
    "ON_DEVICES",
    "Bounds",
    "ClientView",
    "Config",
    "Controller",
    "IslandView",
    "KeptDevices",
    "OperationView",
    "RunView",
    "Snapshot",
    "Stall",
    "live_view",
]

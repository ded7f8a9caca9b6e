"""The controller: the one place where what happens on all islands is decided. A room a decision:

controller   the machine: one event in, all that follows decided, one message an island and a client out
hearing      what roots may report, and what many report at once
clients      sessions and their calls; a breach of the protocol closes that peer
runs         a run's way from the call to its end, which comes exactly once
codes        what is compiled where
admission    memory for a whole run at once, before it is ordered; making room
dispatch     which step may enter an island's order, and when it is over
flights      what is in an order and not over, and who is late
stalls       what runs wait for, since when, and what stalls now: for clients, status and metrics
holdings     who holds which buffer, and what is done when nobody does
contents     puts and gets: contents between clients and hosts
islands      membership in epochs: trees, seats, fences
failures     what dies with a host, a device or a launch
recovery     what a restarted controller rebuilds from those who reconnect
watch        every wait has a soft and a hard bound
outbox       what one turn says;  records, books: what is known;  config: what may be set
"""

from __future__ import annotations

from .config import ON_DEVICES, Config
from .controller import Controller
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
    "OperationView",
    "RunView",
    "Snapshot",
    "Stall",
]

"""Planted bugs that were first found with faults on real processes: peers that restart, are stopped, or leave.

They are searched from seed `ANEW` on, where processes are stopped and take a while to be reached after a restart.
"""

from __future__ import annotations

from typing import Any

from core.controller.contents import Contents
from core.controller.failures import Failures
from core.fanout.relay import StreamReceiver
from core.host.host import Host
from core.protocol.messages import Blame
from core.transfer.sending import SendMachine

from .draw import ANEW
from .planting import Patch, bug, nothing


@bug(
    "given up with its link",
    "a sender forgets what it was to send when a peer begins anew, and says nothing",
    first=ANEW,
)
def _(put: Patch) -> None:
    def lost(self: SendMachine, peer: int, blame: Blame, anew: bool) -> list[Any]:
        self._early.forget(peer)
        effects: list[Any] = []
        for transfer in [transfer for transfer, outs in self._open.items() if peer in outs]:
            del self._open[transfer][peer]
            effects += self._end_if_landed(transfer)
        return effects

    put(SendMachine, "lost", lost)


@bug(
    "orders behind the join",
    "a host that has said what it has goes on to take the old controller's orders",
    masked=True,
    first=ANEW,
)
def _(put: Patch) -> None:
    put(StreamReceiver, "hold", nothing)


@bug(
    "a neighbour's new start",
    "a host does not ask for a seat when the host above or below it begins anew",
    masked=True,
    first=ANEW,
)
def _(put: Patch) -> None:
    put(Host, "_present_beside", nothing)


@bug(
    "a put to a slice that has moved",
    "a put that waits for memory keeps the devices that its slice has left",
    first=ANEW,
)
def _(put: Patch) -> None:
    put(Contents, "take_back", nothing)


@bug(
    "a broken world goes on",
    "a collective that fails because of a peer fails its run, and nothing else",
    first=ANEW,
)
def _(put: Patch) -> None:
    def failed(self: Failures, entry: Any, now: int) -> None:
        if not entry.left:
            self._completion.end(entry, now)

    put(Failures, "peer_failed", failed)

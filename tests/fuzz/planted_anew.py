"""Planted bugs that were first found with faults on real processes: peers that restart, are stopped, or leave.

They are searched from seed `ANEW` on, where processes are stopped and take a while to be reached after a restart; those
that concern views or older copies of a controller's state, where there are any.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from core.client.client_session import ClientSession
from core.controller.clients import Clients
from core.controller.failures import Failures
from core.controller.membership import Membership
from core.controller.puts import Puts
from core.controller.recovery import Recovery
from core.controller.registrations import Registrations
from core.fanout.reduce import EqualReports, Reduction
from core.host.local_buffers import HostBuffers
from core.link.link import Link
from core.model import spans
from core.protocol.messages import Blame
from core.transfer.sending import SendMachine

from .draw import ANEW, OLD_STATES, ONE_WAY, PARTS
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
    "a put to a slice that has moved",
    "a put that waits for memory keeps the devices that its slice has left",
    first=ANEW,
)
def _(put: Patch) -> None:
    put(Puts, "take_back", nothing)


@bug("a broken world goes on", "a collective that fails because of a peer fails its run, and nothing else", first=ANEW)
def _(put: Patch) -> None:
    def failed(self: Failures, entry: Any, now: int) -> None:
        if not entry.left:
            self._completion.end(entry, now)

    put(Failures, "peer_failed", failed)


@bug(
    "a view that nobody claims",
    "after a restart it stays until the grace ends, and what it shares does not",
    first=17_322_950,
)
def _(put: Patch) -> None:
    kept = Recovery._free_unwanted

    def freed(self: Recovery, claims: list[Any]) -> None:
        if not self._opened:
            kept(self, claims)

    put(Recovery, "_free_unwanted", freed)


@bug(
    "a view of a lost array", "a host drops the array, and keeps the view until it is told to free it", first=17_300_900
)
def _(put: Patch) -> None:
    def drop(self: HostBuffers, idents: tuple[int, ...], blame: Blame) -> None:
        self._state.lost.update(dict.fromkeys(idents, blame))
        self.retire_lost(idents)

    put(HostBuffers, "drop", drop)


@bug(
    "an older state is obeyed",
    "hosts and clients obey a controller that does not know the start which they served last",
    first=OLD_STATES,
)
def _(put: Patch) -> None:
    put(Membership, "stranger", lambda *args: "")
    put(Clients, "stranger", nothing)


# --- what front ends need: programs that clients are told of ---


@bug(
    "registrations of an old epoch", "a client is not told of a program whose code a new epoch has voided", first=PARTS
)
def _(put: Patch) -> None:
    put(Registrations, "anew", nothing)


@bug("what hosts say of code is lost", "a relay drops what another host says about code", first=PARTS)
def _(put: Patch) -> None:
    kept = Reduction.put

    def drop(self: Reduction, report: Any, hosts: spans.Spans) -> None:
        kept(self, report, hosts)
        for group in self._groups.values():
            assert isinstance(group, EqualReports)
            if len(group.hosts) > 1:
                group.about = b""

    put(Reduction, "put", drop)


# --- connections that are cut in one direction; `one_way` has the checks that find these ---


@bug("unheard and content", "an end that hears its peer does not notice that it is not heard", first=ONE_WAY)
def _(put: Patch) -> None:
    put(Link, "_lease_end", lambda self: self._received_at + self._lease)


@bug("waits for the link", "a client that is cut off waits until the controller is back", first=ONE_WAY)
def _(put: Patch) -> None:
    disconnected = ClientSession.disconnected

    def patient(self: ClientSession, event: Any, now: int) -> None:
        disconnected(self, replace(event, anew=True), now)

    put(ClientSession, "disconnected", patient)

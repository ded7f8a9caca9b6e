"""One host as a machine: what its island's stream says, in; launches, transfers and reports, out.

    controller --Seat, Dismiss-----------------------------+
    parent --Ordered--> relay (inlet) --> executor <--> transfer <--Grant, Chunk ...--> hosts, clients
    children <--Ordered-- relay <--Up-- executor <--Launch, Finished ...--> devices

A composition and nothing more: who says what to whom is in the tables of `Host.__init__`, and a turn goes
on until nobody inside has anything left to say. What goes up the tree leaves at the end of the turn, as one
message.

Peers are numbered as in `peers`. What halves of transfers do (OpenSend, OpenRecv, DropTransfer, Sent,
Received) is shown to the driver too, before anything is sent for them: it must know which buffer a Chunk
that leaves is cut from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..fanout import HandOver, Relay, Stale
from ..model import Hosts, Illegal
from ..protocol import (
    CONTROLLER,
    Came,
    Chunk,
    Close,
    CodeReady,
    Connected,
    Copied,
    DeviceLost,
    Disconnected,
    Dismiss,
    DropTransfer,
    Effect,
    ExpectRecv,
    Finished,
    FinishedTogether,
    Grant,
    Landed,
    LaunchFailed,
    Leave,
    LeaveRequested,
    Offer,
    OpenRecv,
    OpenSend,
    Ordered,
    Received,
    Reformed,
    Reports,
    RowsCounted,
    Seat,
    Seated,
    Send,
    Sent,
    Spoilt,
    Stop,
    Tell,
    Up,
    Wakeup,
    end_of,
    peer_of,
)
from ..transfer import CHUNK, POOL, Transfer
from .executor import Executor


class Host:
    """`hosts`: which devices each host of the cluster has. `beat`, `patience`: see `relay`. `lane`: see
    `executor`. `pool`, `chunk`: see `transfer`."""

    def __init__(
        self, host: int, hosts: Hosts, *, incarnation: int = 0, beat: int = 500_000_000,
        patience: int = 1_000_000, lane: str = "host", pool: int = POOL, chunk: int = CHUNK,
    ) -> None:  # fmt: skip
        self.host = host
        self.relay = Relay(host, beat, patience)
        self.executor = Executor(host, hosts, lane=lane, incarnation=incarnation)
        self.transfer = Transfer(host, pool, chunk)
        self._stopped = False
        self._cut_off = False  # the link to the controller has ended, and another has not begun
        self._leaving: str | None = None  # why, once it is asked for
        self._out: list[Effect] = []
        self._said: deque[Effect] = deque()  # by the rooms inside, not yet routed
        self._events: dict[type, Callable[[Any, int], None]] = {
            Came: self._came, Connected: self._connected, Disconnected: self._disconnected,
            Wakeup: self._wakeup, LeaveRequested: self._leave, FinishedTogether: self._finished,
        }  # fmt: skip
        for device_event in (Finished, CodeReady, Copied, RowsCounted, LaunchFailed, DeviceLost, Reformed):
            self._events[device_event] = self._to_executor
        self._messages: dict[type, Callable[[int, Any, int], None]] = {
            Ordered: self._ordered, Reports: self._reports, Seat: self._seat, Dismiss: self._dismiss,
        }  # fmt: skip
        for data in (Grant, Chunk, Offer, Spoilt, Landed):
            self._messages[data] = self._data
        # What the rooms inside say; anything else is for the driver.
        self._routes: dict[type, Callable[[Any, int], None]] = {
            Up: self._up, HandOver: lambda said, now: self._to_executor(said.message, now),
            Stale: self._stale, Received: self._ended, Sent: self._ended,
        }  # fmt: skip
        for half in (OpenSend, OpenRecv, ExpectRecv, DropTransfer):
            self._routes[half] = self._half

    # --- the machine ------------------------------------------------------------------------------------

    def handle(self, event: Effect, now: int) -> list[Effect]:
        act = self._events.get(type(event))
        if act is None:
            raise Illegal(f"a host is not told of {type(event).__name__}")
        self._out = []
        if self._stopped:
            return self._out
        act(event, now)
        while self._said:
            effect = self._said.popleft()
            route = self._routes.get(type(effect))
            if route is None:
                self._out.append(effect)
            else:
                route(effect, now)
        self._out += self.relay.flush()
        if (
            self._cut_off
        ):  # what the next link begins with is our Join: nobody is there for what comes before it
            self._out = [effect for effect in self._out if not _is_for_controller(effect)]
        return self._out

    def next_wakeup(self) -> int | None:
        if self._stopped:
            return None
        relay, transfer = self.relay.next_wakeup(), self.transfer.next_wakeup()
        return relay if transfer is None else transfer if relay is None else min(relay, transfer)

    # --- events -----------------------------------------------------------------------------------------

    def _came(self, event: Came, now: int) -> None:
        act = self._messages.get(type(event.message))
        if act is None:
            self._said.append(Close(event.peer, f"a host takes no {type(event.message).__name__}"))
        else:
            act(event.peer, event.message, now)

    def _connected(self, event: Connected, now: int) -> None:
        """To a controller, this or another: it may know nothing of this host, so say all that it may need."""
        if event.peer == CONTROLLER:
            self._cut_off = False
            self._present()
            if self._leaving is not None:
                self._said.append(Send((CONTROLLER,), Leave(self.host, self._leaving)))

    def _present(self) -> None:
        """Say what is here. What it does not name, a new controller would never hear of: so until the seat that answers
        it, no more orders are taken. One who knows of them sends them again behind that seat."""
        self.relay.inlet.hold()
        self._said.append(Send((CONTROLLER,), self.executor.describe()))

    def _disconnected(self, event: Disconnected, now: int) -> None:
        if event.peer == CONTROLLER:
            self._cut_off = True
        else:
            if event.anew and self.relay.beside(event.peer):
                self._present_beside()
            else:
                self.relay.child_lost(event.peer)
            self._to_transfer(Disconnected(end_of(event.peer), event.reason, event.anew), now)

    def _present_beside(self) -> None:
        """What went up or down the link to a neighbour in the tree may be lost, and that one may be another process,
        which does not know. So the controller is asked to seat the island again, after which all that is not settled
        is said again. The path itself is good, for there is a new link."""
        self._present()

    def _leave(self, event: LeaveRequested, now: int) -> None:
        self._leaving = event.reason
        self._said.append(Send((CONTROLLER,), Leave(self.host, event.reason)))

    def _wakeup(self, event: Wakeup, now: int) -> None:
        self.relay.wakeup(now)
        self._to_transfer(event, now)

    def _to_executor(self, event: Any, now: int) -> None:
        self._said += self.executor.handle(event, now)

    def _finished(self, event: FinishedTogether, now: int) -> None:
        for each in event.ends:
            self._to_executor(each, now)

    def _to_transfer(self, event: Effect, now: int) -> None:
        for effect in self.transfer.handle(event, now):
            if isinstance(effect, Send):
                effect = Send(tuple(map(peer_of, effect.peers)), effect.message, effect.causes)
            elif isinstance(effect, Close):
                effect = Close(peer_of(effect.peer), effect.reason)
            self._said.append(effect)

    # --- messages ---------------------------------------------------------------------------------------

    def _ordered(self, peer: int, message: Ordered, now: int) -> None:
        self._said += self.relay.ordered(peer, message)

    def _reports(self, peer: int, message: Reports, now: int) -> None:
        self._said += self.relay.reports(peer, message, now)

    def _seat(self, peer: int, seat: Seat, now: int) -> None:
        if peer != CONTROLLER or seat.host != self.host:
            self._said.append(
                Close(peer, f"a seat for host {seat.host} at host {self.host}, not from the controller")
            )
            return
        place = self.relay.inlet.place
        if place is not None and (seat.epoch, seat.tree) <= (place.epoch, place.tree):
            self._said.append(
                Tell(f"host {self.host}: a seat of epoch {seat.epoch}, tree {seat.tree} came late")
            )
            return
        self._said += self.relay.seated(seat, now)
        self._to_executor(seat, now)

    def _dismiss(self, peer: int, message: Dismiss, now: int) -> None:
        if peer == CONTROLLER:
            self._stopped = True
            self._said.append(Stop(message.reason))

    def _data(self, peer: int, message: Any, now: int) -> None:
        self._to_transfer(Came(end_of(peer), message), now)

    # --- what the rooms inside say ----------------------------------------------------------------------

    def _up(self, said: Up, now: int) -> None:
        if isinstance(said.report, Seated):
            self._said.append(Send((CONTROLLER,), said.report, said.causes))
        else:
            self.relay.report(said.report, now)

    def _stale(self, said: Stale, now: int) -> None:
        self._said.append(Tell(f"host {self.host}: refused from peer {said.peer}: {said.reason}"))

    def _half(self, said: Any, now: int) -> None:
        self._out.append(said)
        self._to_transfer(said, now)

    def _ended(self, said: Received | Sent, now: int) -> None:
        self._out.append(said)
        self._to_executor(said, now)


def _is_for_controller(effect: Effect) -> bool:
    return isinstance(effect, Send) and effect.peers == (CONTROLLER,)

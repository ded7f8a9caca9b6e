"""One host as a machine: what its island's stream says comes in; launches, transfers and reports go out.

    controller --Seat, Dismiss-----------------------------+
    parent --Ordered--> relay (inlet) --> executor <--> transfer <--Grant, Chunk ...--> hosts, clients
    children <--Ordered-- relay <--Up-- executor <--Launch, Finished ...--> devices

It only routes. `handle` takes one event to the part that it concerns; then what the parts say goes, in the order in
which it was said, to another part or to the driver, until no part has anything left to say. That contents have landed
is said behind what follows from them. What goes up the tree leaves at the end of the turn, as one message.

Peers are numbered as in `protocol.peers`. What halves of transfers do (OpenSend, OpenRecv, DropTransfer, Sent,
Received) is shown to the driver too, before anything is sent for them: it must know which buffer a Chunk that leaves
is cut from.

Neighbours: `fanout.Relay`, `executor.Executor`, `transfer.Transfer`. Read `handle` first.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from .. import protocol as p
from ..fanout import Relay
from ..model import Hosts, Illegal
from ..transfer import CHUNK, POOL, Transfer
from .executor import Executor

# What devices, the compiler and copies say.
FOR_EXECUTOR = frozenset(
    (p.Finished, p.CodeReady, p.Copied, p.RowsCounted, p.SourceLost, p.LaunchFailed, p.DeviceLost, p.Reformed)
)


class Host:
    """`hosts`: which devices each host of the cluster has. `beat`, `patience`: see `fanout.relay`. `lane`: see
    `executor`. `pool`, `chunk`: see `transfer`."""

    def __init__(
        self, host: int, hosts: Hosts, *, incarnation: int = 0, beat: int = 500_000_000,
        patience: int = 1_000_000, lane: str = "host", pool: int = POOL, chunk: int = CHUNK,
        executor: Executor | None = None, transfer: Transfer | None = None, start: int = 0,
    ) -> None:  # fmt: skip
        """`executor`, `transfer`: with a past, if not given ones without. `start`: of the controller that took it in,
        see `Join`."""
        self.host, self.start = host, start
        self.relay = Relay(host, beat, patience)
        self.executor = executor or Executor(host, hosts, lane=lane, incarnation=incarnation)
        self.hosts = self.executor.hosts  # which devices each host has, as far as this one has been told
        self.transfer = transfer or Transfer(host, pool, chunk)
        self._stopped = False
        self._cut_off = False  # the link to the controller has ended, and another has not begun
        self._leaving: p.Leave | None = None  # once it is asked for
        self._leaves_by = 0  # in this case: when its patience is over
        self._said: list[p.Command] = []  # by the parts, in this turn
        self._out: list[p.Command] = []  # for the driver
        self._events: dict[type, Callable[[Any, int], None]] = {
            p.Connected: self._connected, p.Disconnected: self._disconnected, p.Wakeup: self._wakeup,
            p.LeaveRequested: self._leave, p.FinishedTogether: self._finished,
        }  # fmt: skip
        self._messages: dict[type, Callable[[int, Any, int], None]] = {
            p.Ordered: self._ordered, p.Reports: self._reports, p.Seat: self._seat, p.Dismiss: self._dismiss,
        }  # fmt: skip
        for data in (p.Grant, p.Chunk, p.Offer, p.Spoilt, p.Landed):
            self._messages[data] = self._data
        # What the parts say to each other; `_pass_on` knows Up itself, and anything else is for the driver.
        self._routes: dict[type, Callable[[Any, int], None]] = {
            p.OpenSend: self._half, p.OpenRecv: self._half, p.ExpectRecv: self._half, p.DropTransfer: self._half,
            p.Received: self._ended, p.Sent: self._ended,
        }  # fmt: skip
        self._inside = frozenset((p.ToController, *self._routes))

    # --- the machine ------------------------------------------------------------------------------------

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        kind = type(event)
        if self._stopped:
            self._check(kind)
            return []
        if kind in FOR_EXECUTOR:
            said = self._said = self.executor.handle(event, now)
        else:
            said = self._said = []
            if type(event) is p.MessageReceived:
                take = self._messages.get(type(event.message))
                if take is None:
                    said.append(p.Close(event.peer, f"a host takes no {type(event.message).__name__}"))
                else:
                    take(event.peer, event.message, now)
            else:
                self._check(kind)
                self._events[kind](event, now)
        relay, out = self.relay, said
        if not self._inside.isdisjoint(map(type, said)):
            out = self._pass_on(said, now)
        if relay.up or relay.unknown:
            relay.flush(out)
        if self._cut_off:  # the next link begins with our Join: nothing that comes before it would be heard
            return [each for each in out if not (isinstance(each, p.Send) and each.peers == (p.CONTROLLER,))]
        return out

    def _pass_on(self, said: list[p.Command], now: int) -> list[p.Command]:
        """Take what the parts say to the parts that it is for. Returns what is for the driver."""
        out: list[p.Command] = []
        landed: list[p.Command] = []  # their receivers only free memory then: what others wait for is said first
        self._out = out
        routes, relay = self._routes, self.relay
        for effect in said:  # which grows meanwhile
            kind = type(effect)
            if type(effect) is p.ToController:
                report = effect.report
                if type(report) is p.Seated:
                    out.append(p.Send((p.CONTROLLER,), report, effect.causes))
                else:
                    relay.report(report, now)  # type: ignore[arg-type]  # any other is a Report
            elif kind in routes:
                routes[kind](effect, now)
            elif kind is p.Send and type(effect.message) is p.Landed:  # type: ignore[attr-defined]
                landed.append(effect)
            else:
                out.append(effect)
        return out + landed if landed else out

    def _check(self, kind: type) -> None:
        if kind is not p.MessageReceived and kind not in FOR_EXECUTOR and kind not in self._events:
            raise Illegal(f"a host is not told of {kind.__name__}")

    def next_wakeup(self) -> int | None:
        return None if self._stopped else self.relay.next_wakeup()

    # --- events -----------------------------------------------------------------------------------------

    def _connected(self, event: p.Connected, now: int) -> None:
        """To a controller, this or another: it may know nothing of this host, so say all that it may need."""
        if event.peer == p.CONTROLLER:
            self._cut_off = False
            self._present()
            if self._leaving is not None:
                left = replace(self._leaving, patience=max(0, self._leaves_by - now))
                self._said.append(p.Send((p.CONTROLLER,), left))

    def _present(self) -> None:
        """Say what is here. A new controller would never hear of what this does not name. So no more orders are taken
        until the seat that answers it; a controller that knows of them sends them again behind that seat."""
        self.relay.inlet.hold()
        self._said.append(p.Send((p.CONTROLLER,), replace(self.executor.describe(), start=self.start)))

    def _disconnected(self, event: p.Disconnected, now: int) -> None:
        if event.peer == p.CONTROLLER:
            self._cut_off = True
        else:
            if event.anew and self.relay.beside(event.peer):
                # What went up or down the link to a neighbour in the tree may be lost, and the neighbour may be another
                # process now, which does not know. So the controller is asked to seat the island again, after which all
                # that is not settled is said again. The path itself is good, for there is a new link.
                self._present()
            else:
                self.relay.child_lost(event.peer)
            self._to_transfer(p.Disconnected(p.end_of(event.peer), event.reason, event.anew), now)

    def _leave(self, event: p.LeaveRequested, now: int) -> None:
        self._leaving, self._leaves_by = p.Leave(self.host, event.reason, event.patience), now + event.patience
        self._said.append(p.Send((p.CONTROLLER,), self._leaving))

    def _wakeup(self, event: p.Wakeup, now: int) -> None:
        self.relay.wakeup(now)

    def _finished(self, event: p.FinishedTogether, now: int) -> None:
        for each in event.ends:
            self._said += self.executor.handle(each, now)

    def _to_transfer(self, event: p.Effect, now: int) -> None:
        for effect in self.transfer.handle(event, now):
            if isinstance(effect, p.Send):
                effect = p.Send(tuple(map(p.peer_of, effect.peers)), effect.message, effect.causes)
            elif isinstance(effect, p.Close):
                effect = p.Close(p.peer_of(effect.peer), effect.reason)
            self._said.append(effect)

    # --- messages ---------------------------------------------------------------------------------------

    def _ordered(self, peer: int, message: p.Ordered, now: int) -> None:
        if self.relay.ordered(peer, message, self._said):
            self._said += self.executor.handle(message, now)

    def _reports(self, peer: int, message: p.Reports, now: int) -> None:
        self.relay.reports(peer, message, now, self._said)

    def _seat(self, peer: int, seat: p.Seat, now: int) -> None:
        if peer != p.CONTROLLER or seat.host != self.host:
            self._said.append(
                p.Close(peer, f"a seat for host {seat.host} at host {self.host}, not from the controller")
            )
            return
        old = self.relay.inlet.seat
        if old is not None and (seat.epoch, seat.tree) <= (old.epoch, old.tree):
            self._said.append(p.LogLine(f"host {self.host}: a seat of epoch {seat.epoch}, tree {seat.tree} came late"))
            return
        self.start = seat.start
        self.relay.seated(seat, now, self._said)
        self._said += self.executor.handle(seat, now)

    def _dismiss(self, peer: int, message: p.Dismiss, now: int) -> None:
        if peer == p.CONTROLLER:
            self._stopped = True
            self._said.append(p.Stop(message.reason, message.for_good))

    def _data(self, peer: int, message: Any, now: int) -> None:
        self._to_transfer(p.MessageReceived(p.end_of(peer), message), now)

    # --- what the parts say to each other ----------------------------------------------------------------

    def _half(self, said: Any, now: int) -> None:
        self._out.append(said)
        self._to_transfer(said, now)

    def _ended(self, said: p.Received | p.Sent, now: int) -> None:
        self._out.append(said)
        self._said += self.executor.handle(said, now)

"""A client's process: the user's Python thread, which makes calls, and the library's thread, which reads messages.

A call takes host time, and the next one can begin when it is over. There are three ways to drive a client:
- `call` runs the simulation until the call is due, and makes it;
- a SimPy process runs `yield from client.turn()` and then calls `act`;
- a driver of several clients waits by itself until `due` and `free_at` are past. Where cores are short, these times
  are lower bounds: ask again later, and they may have grown.
Commands of the client machine that are meant for its user go to `on_effect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import simpy

from core import protocol as p
from core.client import Client, Limits
from core.model import spans
from core.protocol import effects as e
from core.protocol import messages as m
from core.protocol import peers
from core.transfer import Transfer

from ..engine import SimThread
from ..network import CONTROLLER, Together
from .processes import DATA, Process

if TYPE_CHECKING:
    from .context import CohortHosts, Context


# --- its end of transfers ---------------------------------------------------------------------------------------------

# Core's machine, but for puts and gets whose hosts are simulated together. What it and the machines of those hosts
# would say to each other is known without them (`sim.cohort.client_contents`). Only the last word comes here, and
# ends the put or get as core's machine would.


class ClientTransfer(Transfer):
    """`client`: its process. `together`: whether the hosts of a put or get are simulated together. `come`: brings a
    message of a host to the process."""

    def __init__(
        self, me: int, pool: int, chunk: int, client: int, together: Callable[[p.OpenSend | p.OpenRecv], bool],
        come: Callable[[int, int, Any], None],
    ) -> None:  # fmt: skip
        super().__init__(me, pool, chunk)
        self.client, self._together, self._come = client, together, come
        self._open: dict[int, bool] = {}  # whose hosts are simulated together: whether it is a get

    def handle(self, event: p.Effect, now: int) -> list[p.Command]:
        about = event.message if isinstance(event, p.MessageReceived) else event
        if isinstance(about, p.OpenSend | p.OpenRecv) and self._together(about):
            self._open[about.transfer] = isinstance(about, p.OpenRecv)
            return []
        if isinstance(about, p.Landed | p.Chunk | p.DropTransfer) and about.transfer in self._open:
            getting = self._open.pop(about.transfer)
            blame = about.blame if isinstance(about, p.DropTransfer) else None
            return [p.Received(about.transfer, blame) if getting else p.Sent(about.transfer)]
        return super().handle(event, now)

    def end(self) -> list[p.Command]:
        ended: list[p.Command] = [p.Sent(transfer) for transfer, getting in self._open.items() if not getting]
        self._open.clear()
        return ended + super().end()

    def has(self, transfer: int) -> bool:
        """Whether the hosts of this put or get are simulated together, and it is not over."""
        return transfer in self._open

    def last_word(self, host: int, transfer: int) -> None:
        """The last host says that its contents have landed, or sends the last of what is got."""
        if self._open.get(transfer):
            self._come(host, transfer, p.Chunk(transfer, host, self.me, 0, 0, 0))
        else:
            self._come(host, transfer, p.Landed(transfer, self.me, host))


T = TypeVar("T")


class SimClient(Process):
    """A simulated client. `index` is its place among the clients, and its process is `peers.client(index + 1)`.
    The number that the controller gives it is the same as long as the controller lives."""

    def __init__(self, sim: Context, index: int, name: str, weight: int, priority: int, limits: Limits | None) -> None:
        self.client = Client(
            name, sim.hosts_of, weight=weight, priority=priority, limits=limits, chunk=sim.chunk,
            transfer=self._make_transfer,
        )  # fmt: skip
        super().__init__(sim, peers.client(index + 1), self.client)
        self._transfer: ClientTransfer | None = None
        self.index = index
        self.title = name
        self.weight = weight
        self.on_effect: Callable[[e.Command], None] = lambda effect: None
        self._free_at = 0  # when its Python thread is free
        sim.machines.named(self.name, name)
        share = sim.machines.share(self)
        self._lane = SimThread(sim.clock, self.serve, share)
        self._contents = SimThread(sim.clock, self.serve, share)
        self._wire = SimThread(sim.clock, lambda came, now: self.take_all(came[0], came[1].messages, now), share)
        self._turn = sim.machines.turn(self)

    @property
    def number(self) -> int:
        return self.client.number

    @property
    def due(self) -> int:
        """When a call that begins now would be made: the thread must be free, and a call takes host time."""
        if self._turn:
            self._turn.begin()
            return self._turn.soonest
        return max(self.sim.now, self._free_at) + self.sim.profile.client_call

    @property
    def free_at(self) -> int:
        """When its Python thread is free."""
        if self._turn and self._turn.under_way:
            return self._turn.soonest
        return self._free_at

    def turn(self) -> Iterator[simpy.Event]:
        """For a user that is a SimPy process: waits until a call is due."""
        if self._turn:
            self._turn.begin()
            if self._turn.under_way:
                yield self._turn.come
        else:
            yield self.sim.env.timeout(self.due - self.sim.now)

    def call(self, act: Callable[[Client, int], T]) -> T:
        """For a user that drives the simulation alone: runs it until the call is due, and makes the call."""
        turn = self._turn
        if turn:
            turn.begin()
            self.sim.run(until=lambda: not turn.under_way)
        else:
            self.sim.run(until=self.due)
        return self.act(act)

    def act(self, act: Callable[[Client, int], T]) -> T:
        """Applies `act` to the client machine now. If `act` returns `Blocked`, nothing has happened: try again after
        `Unblocked`."""
        now = self.sim.now
        if self._turn:
            self._turn.take()
        result = act(self.client, now)
        self._free_at = max(self._free_at, self.carry_out(self.client.handle(e.CallsMade(), now), now))
        self.arm()
        return result

    def come(self, sender: int, number: int, message: Any) -> None:
        if isinstance(message, Together):
            self._wire.put((sender, number), self.sim.taking_wire(message), (sender, message))
            return
        event = e.MessageReceived(sender, message)
        if type(message) in DATA:
            self._contents.put((sender, number), 0, event)
        else:
            self._lane.put((sender, number), self.sim.profile.client_note, event)

    def take(self, sender: int, message: Any, at: int) -> int:
        notes = len(message.notes) if isinstance(message, m.ClientMessages) else int(type(message) not in DATA)
        return self.serve_until(e.MessageReceived(sender, message), at + notes * self.sim.profile.client_note)

    def lose(self, sender: int, reason: str) -> None:
        if self.alive:
            self._lane.put((sender, 1 << 62), 0, e.Disconnected(sender, reason))

    def carry_out(self, effects: Sequence[e.Command], at: int) -> int:
        sim = self.sim
        for effect in effects:
            match effect:
                case e.RunEnded():
                    self.on_effect(effect)
                case e.Send(peers=to, message=message):
                    for peer in to:
                        if peer != CONTROLLER:
                            sim.send_contents(self.name, peer, message, at)
                        elif sim.machines.batches and sim.machines.carries(self.name, peer):
                            sim.machines.put(self, peer, message, at)
                        else:
                            nbytes = sim.weights.of(message)
                            sim.network.send(self.name, CONTROLLER, message, nbytes, at)
                case e.Close(peer=peer, reason=reason):
                    sim.tell(f"client {self.title!r} closes peer {peer}: {reason}")
                case e.OpenSend():
                    self._begin(effect, getting=False)
                case e.OpenRecv():
                    self._begin(effect, getting=True)
                    self.on_effect(effect)
                case e.Sent(transfer=transfer):
                    sim.contents.card(self.name, getting=False).over(transfer)
                case e.Received(transfer=transfer):
                    sim.contents.card(self.name, getting=True).over(transfer)
                    self.on_effect(effect)
                case _:
                    self.on_effect(effect)
        return at

    # --- contents -------------------------------------------------------------------------------------------

    def _make_transfer(self, me: int, pool: int, chunk: int) -> ClientTransfer:
        made = self._transfer = ClientTransfer(me, pool, chunk, self.name, self._goes_together, self.come)
        return made

    def _goes_together(self, opening: e.OpenSend | e.OpenRecv) -> bool:
        cohort = self._cohort_of(opening)
        return cohort is not None and opening.transfer in cohort.contents.under_way

    def _cohort_of(self, opening: e.OpenSend | e.OpenRecv) -> CohortHosts | None:
        (layout,) = opening.sources or opening.targets
        return self.sim.islands.get(layout.place.island)

    def _begin(self, opening: e.OpenSend | e.OpenRecv, getting: bool) -> None:
        """A put or a get begins."""
        sim, machine, cohort = self.sim, self._transfer, self._cohort_of(opening)
        if cohort is not None and machine is not None and machine.has(opening.transfer):
            cohort.contents.client_end(machine, opening)
            return
        if cohort is not None and sim.regular:
            hosts = spans.of({host for host, _, _ in opening.pieces})
            cohort.contents.connects(self.name, hosts, sim.now + cohort.contents.first_word(getting))
        sim.contents.begin(self.name, opening.transfer, opening.pieces, getting)

"""A client's process: the user's Python thread, which calls, and the library's, which reads what comes.

A call takes host time, and the next one begins when it is over: `call` runs the simulation until then, and
whoever drives several clients waits for `due` in his own way and then calls `act`. What the client machine has
to say to its user goes to `on_effect`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from core import effects as e
from core import peers
from core.client import Client
from core.clientside import ClientSide
from core.session import Limits

from .lanes import Lane
from .network import CONTROLLER
from .processes import DATA, Process

if TYPE_CHECKING:
    from .simulation import Simulation

T = TypeVar("T")


class SimClient(Process):
    """`index`: its place among the clients; its process is `peers.client(index + 1)`, whatever number the
    controller gives it (which is the same, while the controller lives)."""

    side: ClientSide

    def __init__(
        self, sim: Simulation, index: int, name: str, weight: int, priority: int, limits: Limits | None
    ) -> None:
        self.side = ClientSide(
            Client(name, weight=weight, priority=priority, limits=limits), sim.hosts_of, chunk=sim.chunk
        )
        super().__init__(sim, peers.client(index + 1), self.side)
        self.index = index
        self.title = name
        self.weight = weight
        self.on_effect: Callable[[e.Effect], None] = lambda effect: None
        self.free_at = 0  # its Python thread
        self._lane = Lane(sim.clock, self.serve)

    @property
    def number(self) -> int:
        return self.side.client.number

    @property
    def due(self) -> int:
        """When a call that is begun now would be made: the thread must be free, and a call takes host time."""
        return max(self.sim.now, self.free_at) + self.sim.profile.client_call

    def call(self, act: Callable[[Client, int], T]) -> T:
        """For a user who drives the simulation alone: run until the call is due, and make it."""
        self.sim.run(until=self.due)
        return self.act(act)

    def act(self, act: Callable[[Client, int], T]) -> T:
        """`act` calls the client machine, now. It may return `Blocked`: then nothing has happened; try again
        after `Unblocked`."""
        now = self.sim.now
        result = act(self.side.client, now)
        self.free_at = self.carry_out(self.side.handle(e.Called(), now), now)
        self.arm()
        return result

    def come(self, sender: int, number: int, message: Any) -> None:
        cost = 0 if isinstance(message, DATA) else self.sim.profile.client_note
        self._lane.put((sender, number), cost, e.Came(sender, message))

    def lose(self, sender: int, reason: str) -> None:
        if self.alive:
            self._lane.put((sender, 1 << 62), 0, e.Disconnected(sender, reason))

    def carry_out(self, effects: Sequence[e.Effect], at: int) -> int:
        sim = self.sim
        for effect in effects:
            match effect:
                case e.Send(peers=to, message=message):
                    for peer in to:
                        if peer == CONTROLLER:
                            nbytes = sim.weights.of(message)
                            sim.network.send(self.name, CONTROLLER, message, nbytes, at)
                        else:
                            sim.send_contents(self.name, peer, message, at)
                case e.Close(peer=peer, reason=reason):
                    sim.tell(f"client {self.title!r} closes peer {peer}: {reason}")
                case _:
                    self.on_effect(effect)
        return at

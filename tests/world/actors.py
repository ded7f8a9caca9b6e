"""Who lives in the world: a controller, hosts and clients, each a machine in an `Endpoint`, and what they may do.

An actor carries out its machine's effects in the world and hands it the world's events. It decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core import effects as e
from core import messages as m
from core.endpoint import ConnectionDown, ConnectionUp, Dial, Endpoint, Hang, Machine, PacketCame, Write
from core.invariants import observations as o
from core.link import Frame

if TYPE_CHECKING:
    from .world import World


class Recorder:
    """A machine with its diary. What it wants done is done at once, in its order; what it says goes to its endpoint."""

    def __init__(self, machine: Machine, actor: Actor) -> None:
        self.machine = machine
        self._actor = actor

    def handle(self, event: Any, now: int) -> list[e.Effect]:
        effects = self.machine.handle(event, now)
        actor = self._actor
        if actor.world.diary is not None:
            actor.world.write(actor, event, effects)
        actor.told(event)
        words: list[e.Effect] = []
        for effect in effects:
            if isinstance(effect, e.Send):
                actor.says(effect)
                words.append(effect)
            elif isinstance(effect, e.Close):
                words.append(effect)
            else:
                actor.perform(effect)
        return words

    def next_wakeup(self) -> int | None:
        return self.machine.next_wakeup()


class Actor:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.starts = 0
        self.lag = 0  # nanoseconds that it takes to turn to a message: a slow host
        self._busy_until = 0
        self._armed: int | None = None
        self._peer_of: dict[str, int] = {}  # other actors, by the numbers that this machine knows them by
        self._actor_of: dict[int, str] = {}
        self.endpoint: Endpoint

    # --- life -------------------------------------------------------------------------------------------------------

    def boot(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.alive = True
        self.starts += 1
        self._busy_until = 0
        self._armed = None
        self._peer_of.clear()
        self._actor_of.clear()
        self.world.network.revive(self.name)
        self._obey(endpoint.start(self.world.now))
        self.world.redial()

    def die(self) -> None:
        self.alive = False
        self.world.wanted = {pair: None for pair in self.world.wanted if pair[0] != self.name}
        self.world.network.die(self.name)

    # --- in ---------------------------------------------------------------------------------------------------------

    def feed(self, event: e.Effect) -> None:
        """At once: what its own devices or its own people say."""
        if self.alive:
            self._obey(self.endpoint.handle(event, self.world.now))

    def hear(self, event: e.Effect) -> None:
        """From the network: in turn, after what came before."""
        world = self.world
        if not self.lag and self._busy_until <= world.now:
            self.feed(event)
            return
        self._busy_until = max(self._busy_until, world.now) + self.lag
        world.soon(self._busy_until - world.now, self._heard, event, self.starts)

    def _heard(self, event: e.Effect, start: int) -> None:
        if start == self.starts:
            self.feed(event)

    # --- out --------------------------------------------------------------------------------------------------------

    def _obey(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                self._write(effect)
            elif isinstance(effect, Dial):
                self.world.dial(self, self.actor(effect.peer))
            elif isinstance(effect, Hang):
                self.world.hang_up(self, self.actor(effect.peer), effect.reason)
        self._arm()

    def _write(self, write: Write) -> None:
        packet = write.packet
        if isinstance(packet, Frame) and packet.message is not None:
            packet = Frame(packet.seq, packet.ack, self.world.post(packet.message), packet.again)
        self.world.network.send(self.name, self.actor(write.peer), packet)

    def perform(self, effect: e.Effect) -> None:
        raise NotImplementedError(f"{self.name} cannot {effect}")

    def told(self, event: Any) -> None:
        """Its machine was told this."""

    def says(self, send: e.Send) -> None:
        """Its machine says this."""

    def _arm(self) -> None:
        at = self.endpoint.next_wakeup()
        if at is not None and (self._armed is None or at < self._armed):
            self._armed = at
            self.world.clock.timer(at, self._ring, at, self.starts)

    def _ring(self, at: int, start: int) -> None:
        if start == self.starts and self.alive and self._armed == at:
            self._armed = None
            self._obey(self.endpoint.handle(e.Wakeup(), self.world.now))

    # --- names --------------------------------------------------------------------------------------------------------

    def peer(self, other: str) -> int:
        """The number by which this machine knows another actor, from the moment they first met."""
        found = self._peer_of.get(other)
        if found is None:
            found = self._peer_of[other] = self.world.number(other, self)
            self._actor_of[found] = other
        return found

    def actor(self, peer: int) -> str:
        return self._actor_of.get(peer) or self.world.name_of(peer, self)

    def forget(self, other: str) -> None:
        """It has another number from now on."""
        found = self._peer_of.pop(other, None)
        if found is not None:
            del self._actor_of[found]

    def connection_up(self, other: str) -> None:
        self.hear(ConnectionUp(self.peer(other)))

    def connection_down(self, other: str) -> None:
        self.hear(ConnectionDown(self.peer(other)))

    def packet(self, other: str, packet: Any) -> None:
        self.hear(PacketCame(self.peer(other), packet))


class ControllerActor(Actor):
    def perform(self, effect: e.Effect) -> None:
        world = self.world
        match effect:
            case e.FormWorld():
                world.soon(world.timing.form, self._formed, effect, self.starts)
            case e.Tell(said):
                world.told.append(said)
            case _:
                super().perform(effect)

    def _formed(self, effect: e.FormWorld, start: int) -> None:
        if start == self.starts:
            self.feed(e.WorldUp(effect.island, effect.epoch))

    def says(self, send: e.Send) -> None:
        said = send.message
        if isinstance(said, m.Ordered):
            self.world.ordered(said)
        elif isinstance(said, m.Notes):
            for note in said.notes:
                self._note(send.peers[0], note)
        else:
            self._note(send.peers[0], said)

    def _note(self, peer: int, note: Any) -> None:
        if isinstance(note, m.Opened):
            self.world.client_numbered(peer, note.client)
        elif isinstance(note, m.Ended):
            self.world.ended(peer, note)


class HostActor(Actor):
    def __init__(self, world: World, host: int) -> None:
        super().__init__(world, f"host {host}")
        self.host = host
        self.epoch = -1
        self.leaving = False

    def die(self) -> None:
        super().die()
        self.epoch = -1
        self.world.fabric.die(self.host)
        self.world.plane.forget(self.host)
        self.world.forming = {key: who for key, who in self.world.forming.items() if self.host not in who}

    def perform(self, effect: e.Effect) -> None:
        world, fabric = self.world, self.world.fabric
        match effect:
            case e.Launch():
                fabric.launch(self.host, effect, world.plan_of_run(self, effect.run), self.epoch)
            case e.FreeBuffer():
                fabric.free(self.host, effect.buffer)
            case e.MakeBuffer():
                fabric.make(self.host, effect)
            case e.CompileCode():
                world.soon(world.compile_time(self, effect), self._compiled, effect, self.starts)
            case e.SpillBuffer() | e.RestoreBuffer():
                fabric.spill(self.host, effect.seq, effect.buffer, isinstance(effect, e.RestoreBuffer))
            case e.CountRows():
                world.soon(world.timing.count, self._count, effect, self.starts)
            case e.Abandon():
                fabric.abandon(self.host, effect.seqs)
            case e.Reform():
                fabric.abandon(self.host, effect.abandon)
                world.reform(self, effect)
            case e.Stop():
                world.soon(0, world.stopped, self, self.starts)
            case e.OpenSend():
                world.plane.opened_send(self.host, effect)
            case e.OpenRecv():
                world.plane.opened_recv(self.host, effect)
            case e.Sent():
                world.plane.sent(self.host, effect.transfer)
            case e.Received():
                world.plane.received(self.host, effect.transfer, effect.blame)
            case e.Fill():
                world.plane.write(self.host, effect.chunk)
            case e.Prepare() | e.DropTransfer() | e.ExpectRecv() | e.Tell():
                pass
            case _:
                super().perform(effect)

    def _compiled(self, effect: e.CompileCode, start: int) -> None:
        if start == self.starts:
            self.feed(e.CodeReady(effect.plan, effect.code, self.world.compile_blame(self, effect)))

    def _count(self, effect: e.CountRows, start: int) -> None:
        if start == self.starts and self.alive:
            self.feed(self.world.plane.count_rows(self.host, effect))

    def told(self, event: Any) -> None:
        if isinstance(event, e.Reformed) and event.epoch > self.epoch:
            self.epoch = event.epoch
            if self.world.observe:
                island = self.world.cluster.island_of_host(self.host).index
                self.world.observe(o.HostSeated(self.host, island, event.epoch))

    def says(self, send: e.Send) -> None:
        self.world.plane.said(send.message, self.host)

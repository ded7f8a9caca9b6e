"""The processes of the world: the controller, hosts and clients, each a machine in an `Endpoint`.

An actor carries out its machine's commands in the world, and gives it the world's events. It decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from core.link.endpoint import ConnectionDown, ConnectionUp, Dial, Endpoint, HangUp, Machine, PacketReceived, Write
from core.link.link import Frame
from core.model import spans
from core.model.plan import Gang
from core.protocol import effects as e
from core.protocol import messages as m
from tests.invariants import observations as o

from .views import make_view

if TYPE_CHECKING:
    from .world import World


class Recorder:
    """Wraps a machine to write the diary. It carries out local commands at once, and passes Send and Close on."""

    def __init__(self, machine: Machine, actor: Actor) -> None:
        self.machine = machine
        self._actor = actor

    def handle(self, event: Any, now: int) -> list[e.Command]:
        effects = self.machine.handle(event, now)
        actor = self._actor
        if actor.world.diary is not None:
            actor.world.write(actor, event, effects)
        actor.told(event)
        words: list[e.Command] = []
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
        self.lag = 0  # nanoseconds before it handles a message; for slow hosts
        self.still = False  # whether the process is stopped; events are kept until it goes on
        self.stops = 0  # how often it was
        self._kept: deque[e.Event | None] = deque()  # None: its timer
        self._busy_until = 0
        self._armed: int | None = None
        self._peer_of: dict[str, int] = {}  # name of another actor -> the number by which this machine knows it
        self._actor_of: dict[int, str] = {}
        self.endpoint: Endpoint

    # --- life -------------------------------------------------------------------------------------------

    def boot(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.alive = True
        self.starts += 1
        self._busy_until = 0
        self._armed = None
        self.still = False
        self._kept.clear()
        self._peer_of.clear()
        self._actor_of.clear()
        self.world.network.revive(self.name)
        self._obey(endpoint.start(self.world.now))
        self.world.found_again(self.name)

    def die(self) -> None:
        self.alive = self.still = False
        self.world.wanted = {pair: None for pair in self.world.wanted if pair[0] != self.name}
        self.world.network.die(self.name)

    def stand_still(self) -> None:
        """Stop the process: its connections stay, and all events wait."""
        self.still = self.alive
        self.stops += 1

    def go_on(self, timer_first: bool) -> None:
        if not self.still:
            return
        self.still = False
        if timer_first and None in self._kept:
            self._kept.remove(None)
            self._kept.appendleft(None)
        while self._kept and self.alive and not self.still:
            event = self._kept.popleft()
            if event is not None:
                self.feed(event)
            elif self._armed is not None:
                self._ring(self._armed, self.starts)
        self.world.found_again(self.name)

    # --- in ---------------------------------------------------------------------------------------------

    def feed(self, event: e.Event) -> None:
        """Give the machine an event at once: from its own devices, or from its user."""
        if self.still:
            self._kept.append(event)
        elif self.alive:
            self._obey(self.endpoint.handle(event, self.world.now))

    def hear(self, event: e.Event) -> None:
        """Give the machine an event from the network, after the ones that came before."""
        world = self.world
        if not self.lag and self._busy_until <= world.now:
            self.feed(event)
            return
        self._busy_until = max(self._busy_until, world.now) + self.lag
        world.soon(self._busy_until - world.now, self._heard, event, self.starts)

    def _heard(self, event: e.Event, start: int) -> None:
        if start == self.starts:
            self.feed(event)

    # --- out --------------------------------------------------------------------------------------------

    def _obey(self, effects: list[e.Command]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                self._write(effect)
            elif isinstance(effect, Dial):
                self.world.dial(self, self.actor(effect.peer))
            elif isinstance(effect, HangUp):
                self.world.hang_up(self, self.actor(effect.peer), effect.reason)
        self._arm()

    def _write(self, write: Write) -> None:
        packet = write.packet
        if isinstance(packet, Frame) and packet.message is not None:
            packet = msgspec.structs.replace(packet, message=self.world.post(packet.message))
        self.world.network.send(self.name, self.actor(write.peer), packet)

    def perform(self, effect: e.Command) -> None:
        raise NotImplementedError(f"{self.name} cannot {effect}")

    def told(self, event: Any) -> None:
        """The machine has got this event."""

    def says(self, send: e.Send) -> None:
        """The machine sends this."""

    def _arm(self) -> None:
        at = self.endpoint.next_wakeup()
        if at is not None and (self._armed is None or at < self._armed):
            self._armed = at
            self.world.clock.timer(at, self._ring, at, self.starts)

    def _ring(self, at: int, start: int) -> None:
        if start == self.starts and self.alive and self._armed == at:
            if self.still:
                self._kept.append(None)
                return
            self._armed = None
            self._obey(self.endpoint.handle(e.Wakeup(), self.world.now))

    # --- names ------------------------------------------------------------------------------------------

    def peer(self, other: str) -> int:
        """Return the number by which this machine knows another actor. It is fixed when they first meet."""
        found = self._peer_of.get(other)
        if found is None:
            found = self._peer_of[other] = self.world.number(other, self)
            self._actor_of[found] = other
        return found

    def actor(self, peer: int) -> str:
        return self._actor_of.get(peer) or self.world.name_of(peer, self)

    def forget(self, other: str) -> None:
        """Forget the number of another actor, which gets a new one."""
        found = self._peer_of.pop(other, None)
        if found is not None:
            del self._actor_of[found]

    def connection_up(self, other: str) -> None:
        self.hear(ConnectionUp(self.peer(other)))

    def connection_down(self, other: str) -> None:
        self.hear(ConnectionDown(self.peer(other)))

    def packet(self, other: str, packet: Any) -> None:
        self.hear(PacketReceived(self.peer(other), packet))


class ControllerActor(Actor):
    def told(self, event: Any) -> None:
        self.world.unlooked = True
        if isinstance(event, e.GrowCluster) and self.world.machine.cluster == event.cluster:
            self.world.grown(event.cluster)

    def perform(self, effect: e.Command) -> None:
        world = self.world
        match effect:
            case e.FormWorld():
                world.soon(world.timing.form, self._formed, effect, self.starts)
            case e.DropWorlds():
                pass
            case e.LogLine(said):
                world.told.append(said)
            case e.OperatorAnswer(wrong):
                world.answer = wrong
            case e.SuspensionsChanged(slices):
                world.suspended[world.past] = slices
            case e.HostsJoined(hosts):
                world.had[world.past] = hosts
            case e.PolicyReplaced():
                world.told.append(effect.text)
            case _:
                super().perform(effect)

    def _formed(self, effect: e.FormWorld, start: int) -> None:
        if start == self.starts:
            self.feed(e.WorldUp(effect.island, effect.epoch))

    def says(self, send: e.Send) -> None:
        said = send.message
        if isinstance(said, m.Ordered):
            self.world.ordered(said)
        elif isinstance(said, m.ClientMessages):
            for note in said.notes:
                self._note(send.peers[0], note)
        else:
            self._note(send.peers[0], said)

    def _note(self, peer: int, note: Any) -> None:
        if isinstance(note, m.Opened):
            self.world.client_numbered(peer, note.client)
            # What a client that was away for a lease has ended itself, a restarted controller never hears of.
            for name, run in self.world.clients[peer - self.world.cluster.hosts].runs.items():
                if run.ends:
                    self.world.ended(peer, m.Ended(name, run.blame))
        elif isinstance(note, m.Ended):
            self.world.ended(peer, note)
        elif isinstance(note, m.ConnectionClosed) and note.code == "restart":
            self.world.turned_away(peer)


class HostActor(Actor):
    def __init__(self, world: World, host: int) -> None:
        super().__init__(world, f"host {host}")
        self.host = host
        self.epoch = -1
        self.leaving = False
        self.compiled: dict[tuple[int, int], None] = {}  # (plan, code) compiled in this epoch
        self.forgotten: dict[int, None] = {}  # plans
        self._acts = self._table()

    @property
    def machine(self) -> Any:
        return self.endpoint.machine.machine  # type: ignore[attr-defined]

    def die(self) -> None:
        super().die()
        self.epoch = -1
        self.compiled.clear()
        self.forgotten.clear()
        self.world.fabric.die(self.host)
        self.world.plane.forget(self.host)
        self.world.forming = {key: who for key, who in self.world.forming.items() if self.host not in who}

    def perform(self, effect: e.Command) -> None:
        act = self._acts.get(type(effect))
        if act is None:
            super().perform(effect)
        else:
            act(effect)

    def _table(self) -> dict[type, Callable[[Any], None]]:
        world, fabric, plane, host = self.world, self.world.fabric, self.world.plane, self.host
        soon = world.soon

        def nothing(said: e.Command) -> None:
            pass

        return {
            e.Launch: self._launch,
            e.FreeBuffer: self._free,
            e.MakeBuffer: lambda said: fabric.make(host, said),
            e.MakeView: lambda said: make_view(fabric, host, said, *world.views[said.buffer]),
            e.SpillBuffer: lambda said: fabric.spill(host, said.seq, said.buffer, back=False, disk=said.to_disk),
            e.RestoreBuffer: lambda said: fabric.spill(host, said.seq, said.buffer, back=True, disk=said.from_disk),
            e.Abandon: lambda said: fabric.abandon(host, said.seqs),
            e.Cut: lambda said: fabric.cut(host, said.seq),
            e.Reform: self._reform,
            e.Stop: lambda said: soon(0, world.stopped, self, self.starts, said.for_good),
            e.CompileCode: lambda said: soon(world.compiler.time(self.host, said), self._compiled, said, self.starts),
            e.ForgetPlan: self._forget,
            e.CountRows: lambda said: soon(world.timing.read, self._count, said, self.starts),
            e.OpenSend: lambda said: plane.opened_send(host, said),
            e.OpenRecv: lambda said: plane.opened_recv(host, said),
            e.Fill: lambda said: plane.write(host, said.chunk),
            e.Sent: lambda said: plane.sent(host, said.transfer),
            e.Received: lambda said: plane.received(host, said.transfer, said.blame),
            **dict.fromkeys((e.Prepare, e.DropTransfer, e.ExpectRecv, e.LogLine, e.VoidView), nothing),
        }

    def _free(self, said: e.FreeBuffer) -> None:
        for buffer in said.buffers:
            self.world.fabric.free(self.host, buffer)

    def _launch(self, said: e.Launch) -> None:
        plan = self.world.plan_of_run(self, said.run)
        gang = plan.steps[said.step]
        if isinstance(gang, Gang) and (plan.id, gang.computation) not in self.compiled:
            self.world._complain(f"host {self.host} launches gang {said.seq}, whose code is not compiled in this epoch")
        self.world.fabric.launch(self.host, said, plan, self.epoch)

    def _reform(self, said: e.Reform) -> None:
        self.compiled.clear()
        self.world.fabric.abandon(self.host, said.abandon)
        self._join_world(said)

    def _join_world(self, said: e.Reform) -> None:
        """It joins the collective world of its new epoch, which is formed when all members have joined."""
        world = self.world
        island = world.cluster.island_of_host(self.host).index
        come = world.forming.setdefault((island, said.epoch), {})
        come[self.host] = None
        if len(come) == spans.count(said.members):
            del world.forming[island, said.epoch]
            for host in [world.hosts[each] for each in sorted(come)]:
                world.soon(world.timing.form, host.world_formed, host.starts, said.epoch)

    def world_formed(self, start: int, epoch: int) -> None:
        if self.starts == start:
            self.feed(e.Reformed(epoch))

    def _forget(self, said: e.ForgetPlan) -> None:
        """Its code is dropped here, so that a gang of it that is launched all the same is noticed."""
        self.forgotten[said.plan] = None
        self.compiled = {key: None for key in self.compiled if key[0] != said.plan}

    def _compiled(self, effect: e.CompileCode, start: int) -> None:
        if start == self.starts and effect.plan in self.forgotten:
            self.feed(e.CodeReady(effect.plan, effect.code, m.Blame("code", "nobody wants it any more")))
        elif start == self.starts:
            self.compiled[effect.plan, effect.code] = None
            self.feed(self.world.compiler.compiled(self.host, effect))

    def _count(self, effect: e.CountRows, start: int) -> None:
        if start == self.starts and self.alive:
            self.feed(self.world.plane.count_rows(self.host, effect))

    def connection_up(self, other: str) -> None:
        """Know a client by the number that it gives on this connection."""
        known = self._peer_of.get(other)
        if known is not None and known != self.world.number(other, self):
            self.hear(ConnectionDown(known))
            self.forget(other)
        super().connection_up(other)

    def told(self, event: Any) -> None:
        if isinstance(event, e.Reformed) and event.epoch > self.epoch:
            self.epoch = event.epoch
            if self.world.observe:
                island = self.world.cluster.island_of_host(self.host).index
                self.world.observe(o.HostSeated(self.host, island, event.epoch))
        self.world.plane.heard(self.host, event)

    def says(self, send: e.Send) -> None:
        self.world.plane.said(send.message, self.host)

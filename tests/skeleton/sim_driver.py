"""Throw-away driver 1: SimPy. Modelled: links, launches, a collective that starts when all have arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import simpy

from core import effects as e
from core import peers, spans, wire
from core.endpoint import ConnectionDown, ConnectionUp, Dial, Endpoint, Hang, Hello, Packet, PacketCame, Write
from core.host import Host
from core.plan import Gang

from .ends import (
    ONE_CLIENT,
    Result,
    controller_end,
    host_end,
    host_name,
    idle,
    new_controller,
    new_host,
    user_end,
)
from .work import CLUSTER, Rounds, User

US, MS, S = 1_000, 1_000_000, 1_000_000_000
LIMIT = 1000 * S
CONTROLLER, USER = "controller", "user"


@dataclass(frozen=True)
class Model:
    """Hardware, in nanoseconds."""

    latency: int = 50 * US
    byte_ps: int = 800  # 10 Gbit/s
    form: int = 200 * MS
    join: int = 300 * MS
    compile: int = 280 * MS
    launch: int = 20 * US
    slow: dict[int, int] = field(default_factory=dict)  # extra time before a host launches


@dataclass(frozen=True)
class Interval:
    host: int
    seq: int
    arrived: int
    started: int
    ended: int


@dataclass
class SimResult(Result):
    intervals: list[Interval]


class Node:
    """A process: its endpoint and its timer."""

    def __init__(self, world: World, name: str, endpoint: Endpoint, perform: Callable[[Any], None]) -> None:
        self.world, self.name, self.endpoint, self._perform = world, name, endpoint, perform
        self.alive = True
        self._armed: int | None = None

    def start(self) -> None:
        self._obey(self.endpoint.start(self.world.now))

    def feed(self, event: e.Effect) -> None:
        if self.alive:
            self._obey(self.endpoint.handle(event, self.world.now))

    def _obey(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(peer, packet):
                    self.world.send(self, self.world.called(peer), packet)
                case Dial(peer):
                    self.world.dial(self, self.world.called(peer))
                case Hang(peer):
                    self.world.hang_up(self.name, self.world.called(peer))
                case _:
                    self._perform(effect)
        at = self.endpoint.next_wakeup()
        if at is not None and (self._armed is None or at < self._armed):
            self._armed = at
            self.world.after(max(0, at - self.world.now), lambda: self._ring(at))

    def _ring(self, at: int) -> None:
        if self._armed == at:
            self._armed = None
            self.feed(e.Wakeup())


class SimHost:
    """A host's device: one queue, in order, not pre-empted."""

    def __init__(self, world: World, host: Host) -> None:
        self.world, self.host = world, host
        self.log: list[bytes] = []
        self.node = Node(world, host_name(host.host), host_end(host, self.log.append), self.perform)
        self.queue: deque[tuple[int, Gang]] = deque()

    def perform(self, effect: e.Effect) -> None:
        world, model = self.world, self.world.model
        match effect:
            case e.Reform(epoch):
                world.after(model.join, lambda: self.node.feed(e.Reformed(epoch)))
            case e.CompileCode(plan, code):
                world.after(model.compile, lambda: self.node.feed(e.CodeReady(plan, code)))
            case e.Launch(seq, run, step):
                ordered = self.host.executor.plan_of(run)
                gang = ordered.steps[step] if ordered else None
                assert isinstance(gang, Gang)
                late = model.launch + model.slow.get(self.host.host, 0)
                world.after(late, lambda: self._enqueue(seq, gang))
            case _:
                pass  # contents, memory and failures are not modelled

    def _enqueue(self, seq: int, gang: Gang) -> None:
        self.queue.append((seq, gang))
        if len(self.queue) == 1:
            self.world.arrive(self)


class World:
    def __init__(self, model: Model, user: User) -> None:
        self.model, self.user, self.env = model, user, simpy.Environment()
        self.told: list[str] = []
        self.intervals: list[Interval] = []
        self.controller = new_controller()
        end, self.recorder = controller_end(self.controller)
        self.hosts = [SimHost(self, new_host(host)) for host in range(CLUSTER.hosts)]
        self.nodes = {CONTROLLER: Node(self, CONTROLLER, end, self.perform)}
        self.nodes |= {host.node.name: host.node for host in self.hosts}
        self.nodes[USER] = Node(self, USER, user_end(user), user.saw)
        self._last: dict[tuple[str, str], int] = {}  # connections: when what was sent last arrives
        self._arrived: dict[int, dict[int, int]] = {}  # gang -> host -> when

    @property
    def now(self) -> int:
        return int(self.env.now)

    def after(self, delay: int, call: Callable[[], None]) -> None:
        self.env.timeout(delay).callbacks.append(lambda _: call())

    def until(self, over: Callable[[], bool]) -> None:
        while not over():
            assert self.now < LIMIT, f"a hang: {self.user.told} {self.told}"
            self.env.step()

    # --- connections ----------------------------------------------------------------------------------------

    def called(self, peer: int) -> str:
        if peer == peers.CONTROLLER:
            return CONTROLLER
        return host_name(peer) if 0 <= peer < CLUSTER.hosts else USER

    def number(self, name: str, seen_by: str) -> int:
        if name == USER:
            return ONE_CLIENT if seen_by == CONTROLLER else peers.client(self.user.client.number)
        return peers.CONTROLLER if name == CONTROLLER else int(name.removeprefix("host/"))

    def dial(self, node: Node, other: str) -> None:
        for here, there in ((node.name, other), (other, node.name)):
            self._last[here, there] = 0
            self._post(here, there, ConnectionUp(self.number(here, there)))

    def send(self, node: Node, to: str, packet: Packet) -> None:
        """Latency, bytes, first in first out; and through bytes, as in earnest."""
        size = 0
        if not isinstance(packet, Hello):
            data = wire.encode_frame(packet)
            packet, size = wire.decode_frame(data), len(data)
        if (node.name, to) in self._last:
            self._post(node.name, to, PacketCame(self.number(node.name, to), packet), size)

    def _post(self, sender: str, to: str, event: e.Effect, size: int = 0) -> None:
        arrival = self.now + self.model.latency + size * self.model.byte_ps // 1000
        arrival = self._last[sender, to] = max(arrival, self._last[sender, to])
        self.after(arrival - self.now, lambda: self.nodes[to].feed(event))

    def hang_up(self, name: str, other: str) -> None:
        if (name, other) in self._last:
            self._post(name, other, ConnectionDown(self.number(name, other)))
            del self._last[name, other], self._last[other, name]

    def kill(self, name: str) -> None:
        self.nodes[name].alive = False
        for other in self.nodes:
            self.hang_up(name, other)

    # --- effects --------------------------------------------------------------------------------------------

    def perform(self, effect: e.Effect) -> None:
        """The controller's."""
        match effect:
            case e.FormWorld(island, epoch):
                self.after(self.model.form, lambda: self.nodes[CONTROLLER].feed(e.WorldUp(island, epoch)))
            case e.Tell(text):
                self.told.append(text)
            case _:
                raise NotImplementedError(effect)

    def arrive(self, host: SimHost) -> None:
        """A device comes to the head of its queue: the collective starts when every member has come to it."""
        seq, gang = host.queue[0]
        arrived = self._arrived.setdefault(seq, {})
        arrived[host.host.host] = self.now
        if len(arrived) == spans.count(CLUSTER.hosts_of(gang.place)):
            started = self.now
            self.after(gang.cost, lambda: self._end(seq, started))

    def _end(self, seq: int, started: int) -> None:
        for number, arrived in self._arrived.pop(seq).items():
            host = self.hosts[number]
            host.queue.popleft()
            self.intervals.append(Interval(number, seq, arrived, started, self.now))
            host.node.feed(e.Finished(seq))
            if host.queue:
                self.arrive(host)


def run(rounds: Rounds, blob: bytes, kill: int = -1, model: Model | None = None) -> SimResult:
    """`kill`: this host, behind the first round."""
    user = User(blob)
    world = World(model or Model(), user)
    for node in world.nodes.values():
        node.start()
    for number, length in enumerate(rounds):
        if number == 1 and kill >= 0:
            world.kill(host_name(kill))
        user.call(length, world.now)
        world.nodes[USER].feed(e.Called())
        world.until(lambda: user.over and idle(world.controller))
    user.client.close(world.now)
    world.nodes[USER].feed(e.Called())
    world.until(lambda: user.client.state == "closed")
    logs = {host.node.name: b"".join(host.log) for host in world.hosts}
    logs[CONTROLLER] = world.recorder.log()
    return SimResult(world.controller, user, logs, world.told, world.intervals)

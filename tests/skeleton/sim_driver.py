"""Throw-away driver 1: SimPy. Modelled: links, launches, a collective that starts when all have arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import simpy

from . import vocabulary as v
from .client import Client, Workload
from .minicore import CONTROLLER, Controller
from .miniexecutor import Executor
from .tape import Machine, Recorder, Tape

US = 1_000
MS = 1_000_000


@dataclass(frozen=True)
class Model:
    """Hardware, in nanoseconds."""

    link: dict[str, int] = field(default_factory=dict)  # one-way latency to and from a peer
    default_link: int = 50 * US
    byte_ps: int = 800  # 10 Gbit/s
    coordination: int = 200 * MS
    join: int = 300 * MS
    build: int = 280 * MS
    launch: int = 20 * US
    slow: dict[str, int] = field(default_factory=dict)  # extra time before a host launches


@dataclass(frozen=True)
class Interval:
    host: str
    order: int
    arrived: int
    started: int
    ended: int


@dataclass
class SimResult:
    tapes: dict[str, Tape]
    intervals: list[Interval]
    reports: list[v.ReportLate]
    finish: v.Finish | None
    finished_at: int


class Node:
    """One machine, its timer and, for a host, its device."""

    def __init__(self, world: World, name: str, machine: Machine) -> None:
        self.world, self.name, self.machine = world, name, Recorder(machine)
        self.alive = True
        self.costs: dict[v.Key, int] = {}
        self.queue: deque[v.Launch] = deque()  # the device: in order, not pre-empted
        self._armed: int | None = None

    def feed(self, event: v.Event) -> None:
        if not self.alive:
            return
        for command in self.machine.handle(event, self.world.now):
            self.world.perform(self, command)
        at = self.machine.next_wakeup()
        if at != self._armed:
            self._armed = at
            if at is not None:
                self.world.after(max(0, at - self.world.now), lambda: self._ring(at))

    def _ring(self, at: int) -> None:
        if self._armed == at:
            self._armed = None
            self.feed(v.Wakeup())


class World:
    def __init__(
        self, model: Model, hosts: tuple[str, ...], work: Workload, bound_ns: int, kill: str
    ) -> None:
        self.model, self.env, self.kill = model, simpy.Environment(), kill
        self.nodes = {CONTROLLER: Node(self, CONTROLLER, Controller(hosts, bound_ns))}
        self.nodes |= {h: Node(self, h, Executor(h)) for h in hosts}
        self.nodes |= {"client/0": Node(self, "client/0", Client("client/0", work))}
        self._last: dict[tuple[str, str], int] = {}
        self._arrived: dict[int, dict[str, int]] = {}
        self.intervals: list[Interval] = []
        self.reports: list[v.ReportLate] = []
        self.finish: v.Finish | None = None
        self.finished_at = 0

    @property
    def now(self) -> int:
        return int(self.env.now)

    def after(self, delay: int, call: Callable[[], None]) -> None:
        self.env.timeout(delay).callbacks.append(lambda _: call())

    def post(self, name: str, event: v.Event, delay: int) -> None:
        self.after(delay, lambda: self.nodes[name].feed(event))

    def send(self, source: str, to: str, event: v.Event, size: int = 0) -> None:
        """Over the link between two nodes: latency, bytes, first in first out."""
        ends = [n for n in (source, to) if n != CONTROLLER]
        latency = sum(self.model.link.get(n, self.model.default_link) for n in ends)
        arrival = self.now + latency + size * self.model.byte_ps // 1000
        arrival = self._last[source, to] = max(arrival, self._last.get((source, to), 0))
        self.post(to, event, arrival - self.now)

    def perform(self, node: Node, command: v.Command) -> None:
        m = self.model
        match command:
            case v.Send(to, message):
                size = len(msgspec.msgpack.encode(message))
                for peer in to:
                    self.send(node.name, peer, v.Received(node.name, message), size)
            case v.StartCoordination(epoch):
                if self.kill:
                    self.nodes[self.kill].alive = False
                    self.send(self.kill, CONTROLLER, v.Disconnected(self.kill))
                self.post(node.name, v.CoordinationUp(epoch), m.coordination)
            case v.JoinWorld(epoch):
                self.post(node.name, v.WorldJoined(epoch), m.join)
            case v.Build(key, _, cost_ns):
                node.costs[key] = cost_ns
                self.post(node.name, v.Built(key, ""), m.build)
            case v.Launch():
                self.after(m.launch + m.slow.get(node.name, 0), lambda: self._enqueue(node, command))
            case v.Deliver(to, buffer):
                self.send(node.name, to, v.Pulled(buffer, node.name), 64)
            case v.Pull(buffer, host):
                self.send(node.name, host, v.Received(node.name, v.Fetch(buffer)), 32)
            case v.ReportLate():
                self.reports.append(command)
            case v.Finish():
                self.finish, self.finished_at = command, self.now
            case _:
                pass  # Drop: memory is not modelled

    def _enqueue(self, node: Node, launch: v.Launch) -> None:
        node.queue.append(launch)
        node.feed(v.Launched(launch.order))
        if len(node.queue) == 1:
            self._arrive(node)

    def _arrive(self, node: Node) -> None:
        """A device comes to the head of its queue: the collective starts when every member has come to it."""
        launch = node.queue[0]
        arrived = self._arrived.setdefault(launch.order, {})
        arrived[node.name] = self.now
        if len(arrived) == len(launch.members):
            started = self.now
            self.after(node.costs[launch.computation], lambda: self._end(launch, started))

    def _end(self, launch: v.Launch, started: int) -> None:
        for host, arrived in self._arrived.pop(launch.order).items():
            node = self.nodes[host]
            node.queue.popleft()
            self.intervals.append(Interval(host, launch.order, arrived, started, self.now))
            node.feed(v.Ended(launch.order, ""))
            if node.queue:
                self._arrive(node)


def run(
    work: Workload, hosts: tuple[str, ...], bound_ns: int, model: Model | None = None, kill: str = ""
) -> SimResult:
    world = World(model or Model(), hosts, work, bound_ns, kill)
    for host in hosts:
        world.send(host, CONTROLLER, v.Connected(host))
    world.send(CONTROLLER, "client/0", v.Connected(CONTROLLER))
    world.env.run()
    tapes = {name: node.machine.tape for name, node in world.nodes.items()}
    return SimResult(tapes, world.intervals, world.reports, world.finish, world.finished_at)

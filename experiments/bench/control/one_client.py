"""One client, a controller and the hosts' executor, without network: they measure core's CPU time for each call.

The client calls a program of some nodes on all devices of an island. One executor stands for all hosts, which behave
alike, so that its work does not grow with the number of hosts. Each root of the tree reports by itself, as in reality.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import msgspec

from core.client import Client, Submitted
from core.controller import Config, Controller
from core.host import Executor
from core.model import (
    Arg,
    Computation,
    Node,
    Out,
    Program,
    Ref,
    Sharding,
    SliceSpec,
    Spans,
    Value,
    small,
    spans,
)
from core.protocol import CONTROLLER
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import LoggedMachine
from core.schedule.policy import Stride

PER_HOST, BEAT_EVERY = 4, 1000  # calls between two heartbeats of all hosts
USER = 1 << 30  # the client's connection


def programs(devices: int, nodes: int) -> tuple[Program, Program]:
    """(a program that makes a value on all devices, one that takes a donated value and makes the next)."""
    value = Value((devices,), "int8", 0, Sharding(((0,),)))
    slices, work = (SliceSpec("all", devices),), (Computation("step", "step", 10_000),)
    refs: list[Ref] = [Arg(0), *map(Out, range(nodes))]
    steps = tuple(Node(f"step {at}", 0, 0, (refs[at],), (value,), (value,), (0,)) for at in range(nodes))
    made = Program("make", slices, work, (), (Node("make", 0, 0, (), (), (value,)),), (Out(0),))
    return made, Program("step", slices, work, (value,), steps, (Out(nodes - 1),), donate_args=(0,))


class OneClient:
    """`spent`, `events`: CPU seconds of each machine in the last `run`, and the events that it got. `gangs`: those that
    a host had. `wrap`: wraps the controller, as a recorder does."""

    def __init__(
        self, hosts: int, fanout: int, wrap: Callable[[Controller], LoggedMachine] = lambda controller: controller
    ) -> None:  # fmt: skip
        self.hosts = ((0, hosts),)
        cluster = small(hosts, PER_HOST)
        self.controller = Controller(cluster, Stride, Config(window=16, fanout=fanout))
        self._told = wrap(self.controller)
        self.executor = Executor(0, cluster, members=self.hosts)
        self.client = Client("user", cluster)
        self._reset()
        self._events: deque[e.Event] = deque(
            e.MessageReceived(host, m.Join(host, 0)) for host in range(hosts)
        )
        self._seats: list[m.Seat] = []
        self._roots: Spans = ()
        self._turn()
        self._hear(self._seats[0])  # hosts' seats differ only in fields that an executor does not use
        self._hear(e.Reformed(self._seats[0].epoch))
        self._roots = spans.of(self.controller.state.islands[0].stream.shape.roots)
        self._user(e.Connected(CONTROLLER))

    def run(self, calls: int, ahead: int = 8, nodes: int = 1) -> None:
        """`ahead`: calls made before the controller takes any of them."""
        devices = PER_HOST * self.hosts[0][1]
        first, step = (self.client.register(each, 0) for each in programs(devices, nodes))
        assert isinstance(first, int)
        assert isinstance(step, int)
        buffer = self._submit(step, (self._submit(first, ()),))
        self._turn()
        self._reset()
        for number in range(1, calls + 1):
            buffer = self._submit(step, (buffer,))
            if number % BEAT_EVERY == 0:
                self._up([m.Heartbeat(self.hosts, self.controller.state.islands[0].stream.number)])
            if number % ahead == 0 or number == calls:
                self._turn()

    def _reset(self) -> None:
        self.spent = dict.fromkeys(("client", "controller", "executor"), 0.0)
        self.events = Counter[str]()
        self.gangs = 0

    # --- the machines, each timed -----------------------------------------------------------------------

    def _submit(self, program: int, args: tuple[int, ...]) -> int:
        start = process_time()
        made = self.client.submit(program, args, 0)
        self.spent["client"] += process_time() - start
        assert isinstance(made, Submitted)
        self._user(e.CallsMade())
        return made.results[0]

    def _user(self, event: e.Event) -> None:
        start = process_time()
        said = self.client.handle(event, 0)
        self.spent["client"] += process_time() - start
        for effect in said:
            if isinstance(effect, e.Send):
                self._events.append(e.MessageReceived(USER, effect.message))

    def _turn(self) -> None:
        """Run until no messages are left."""
        while self._events:
            event, start = self._events.popleft(), process_time()
            said = self._told.handle(event, 0)
            self.spent["controller"] += process_time() - start
            self.events["controller"] += 1
            for effect in said:
                if isinstance(effect, e.FormWorld):
                    self._events.append(e.WorldUp(effect.island, effect.epoch))
                elif isinstance(effect, e.Send):
                    self._sent(effect.message)

    def _sent(self, message: object) -> None:
        if isinstance(message, m.Ordered):
            self._hear(message)
        elif isinstance(message, m.Seat):
            self._seats.append(message)
            seated = m.Seated(message.host, message.epoch, message.tree, message.last)
            self._events.append(e.MessageReceived(message.host, seated))
        elif isinstance(message, m.ClientMessages) or hasattr(message, "run") or hasattr(message, "client"):
            self._user(e.MessageReceived(CONTROLLER, message))  # type: ignore[arg-type]

    def _hear(self, event: e.Event | m.Ordered | m.Seat) -> None:
        """Give the hosts' executor an event. Its commands are done at once, on all hosts."""
        work: deque[e.Effect | m.Ordered | m.Seat] = deque([event])
        reports: list[m.Report] = []
        while work:
            start = process_time()
            said = self.executor.handle(work.popleft(), 0)
            self.spent["executor"] += process_time() - start
            self.events["executor"] += 1
            for effect in said:
                if isinstance(effect, e.Launch):
                    self.gangs += 1
                    work.append(e.Finished(effect.seq))
                elif isinstance(effect, e.CompileCode):
                    work.append(e.CodeReady(effect.plan, effect.code))
                elif isinstance(effect, e.ToController) and not isinstance(effect.report, m.Seated):
                    reports.append(effect.report)
        if reports:
            self._up(reports)

    def _up(self, reports: Sequence[Any]) -> None:
        """Each root of the tree reports for the hosts below it; all these reports name the hosts that they are of."""
        island = self.controller.state.islands[0]
        for root in spans.items(self._roots):
            below = island.stream.shape.below(root)
            its = tuple(
                msgspec.structs.replace(each, hosts=spans.meet(each.hosts, below)) for each in reports
            )
            self._events.append(e.MessageReceived(root, m.Reports(0, island.epoch, island.tree_number, its)))

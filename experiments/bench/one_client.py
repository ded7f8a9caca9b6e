"""Measures core's CPU time a gang, from a client's call until the client hears that its run has ended, with many hosts.

One client calls a program of one node on all devices of an island. One executor stands for all hosts, which behave
alike, and one root of the island's tree reports for all. So the benchmark's own work does not grow with the number of
hosts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import process_time

from core.client import Client, Submitted
from core.controller import Config, Controller
from core.host import Executor
from core.model import Arg, Computation, Node, Out, Program, Sharding, SliceSpec, Value, small
from core.protocol import (
    CONTROLLER,
    Beat,
    Called,
    Came,
    CodeReady,
    CompileCode,
    Connected,
    Effect,
    Event,
    Finished,
    FormWorld,
    Join,
    Launch,
    Notes,
    Ordered,
    Reformed,
    Report,
    Reports,
    Seat,
    Seated,
    Send,
    Up,
    WorldUp,
)
from core.record import LoggedMachine
from core.schedule.policy import Stride
from sim.cohort import one_root

PER_HOST, BEAT_EVERY = 4, 1000  # gangs between two heartbeats of all hosts
USER = 1 << 30  # the client's connection


def programs(devices: int) -> tuple[Program, Program]:
    """(a program that makes a value on all devices, one that takes a donated value and makes the next)."""
    value = Value((devices,), "int8", 0, Sharding(((0,),)))
    slices, results = (SliceSpec("all", devices),), (Out(0),)
    made = Node("make", 0, 0, (), (), (value,))
    step = Node("step", 0, 0, (Arg(0),), (value,), (value,), (0,))
    return (
        Program("make", slices, (Computation("make", "make", 10_000),), (), (made,), results),
        Program(
            "step",
            slices,
            (Computation("step", "step", 10_000),),
            (value,),
            (step,),
            results,
            donate_args=(0,),
        ),
    )


def controller(hosts: int) -> Controller:
    return Controller(small(hosts, PER_HOST), Stride, Config(window=16), shape=one_root)


class OneClient:
    """`spent`: CPU seconds of each machine since the last reset. `wrap`: wraps the controller, as a recorder does."""

    def __init__(
        self,
        hosts: int,
        wrap: Callable[[Controller], LoggedMachine] = lambda controller: controller,
    ) -> None:
        self.hosts = ((0, hosts),)
        self.controller = controller(hosts)
        cluster = self.controller.cluster
        self._told = wrap(self.controller)
        self.executor = Executor(0, cluster, members=self.hosts)
        self.client = Client("user", cluster)
        self.spent = dict.fromkeys(("client", "controller", "executor"), 0.0)
        self.gangs = self.ended = 0
        self._events: deque[Event] = deque(Came(host, Join(host, 0)) for host in range(hosts))
        self._seats: list[Seat] = []
        self._turn()
        self._hear(self._seats[0])  # hosts' seats differ only in fields that an executor does not use
        self._hear(Reformed(self._seats[0].epoch))
        self._user(Connected(CONTROLLER))

    def run(self, gangs: int, ahead: int = 8) -> None:
        """`ahead`: calls made before the controller takes any of them."""
        first, step = (self.client.register(each, 0) for each in programs(PER_HOST * self.hosts[0][1]))
        assert isinstance(first, int)
        assert isinstance(step, int)
        buffer = self._submit(first, ())
        self._turn()
        self.spent = dict.fromkeys(self.spent, 0.0)
        for number in range(1, gangs + 1):
            buffer = self._submit(step, (buffer,))
            if number % BEAT_EVERY == 0:
                self._up([Beat(self.hosts, self.controller.state.islands[0].stream.number)])
            if number % ahead == 0 or number == gangs:
                self._turn()

    # --- the machines, each timed -----------------------------------------------------------------------

    def _submit(self, program: int, args: tuple[int, ...]) -> int:
        start = process_time()
        made = self.client.submit(program, args, 0)
        self.spent["client"] += process_time() - start
        assert isinstance(made, Submitted)
        self._user(Called())
        return made.results[0]

    def _user(self, event: Event) -> None:
        start = process_time()
        said = self.client.handle(event, 0)
        self.spent["client"] += process_time() - start
        for effect in said:
            if isinstance(effect, Send):
                self._events.append(Came(USER, effect.message))
            else:
                self.ended += type(effect).__name__ == "RunEnded"

    def _turn(self) -> None:
        """Run until no messages are left."""
        while self._events:
            event, start = self._events.popleft(), process_time()
            said = self._told.handle(event, 0)
            self.spent["controller"] += process_time() - start
            for effect in said:
                if isinstance(effect, FormWorld):
                    self._events.append(WorldUp(effect.island, effect.epoch))
                elif isinstance(effect, Send):
                    self._sent(effect.message)

    def _sent(self, message: object) -> None:
        if isinstance(message, Ordered):
            self._hear(message)
        elif isinstance(message, Seat):
            self._seats.append(message)
            seated = Seated(message.host, message.epoch, message.tree, message.last)
            self._events.append(Came(message.host, seated))
        elif isinstance(message, Notes) or hasattr(message, "run") or hasattr(message, "client"):
            self._user(Came(CONTROLLER, message))  # type: ignore[arg-type]

    def _hear(self, event: Event | Ordered | Seat) -> None:
        """Give the hosts' executor an event. Its commands are done at once, on all hosts."""
        work: deque[Effect | Ordered | Seat] = deque([event])
        reports: list[Report] = []
        while work:
            start = process_time()
            said = self.executor.handle(work.popleft(), 0)
            self.spent["executor"] += process_time() - start
            for effect in said:
                if isinstance(effect, Launch):
                    self.gangs += 1
                    work.append(Finished(effect.seq))
                elif isinstance(effect, CompileCode):
                    work.append(CodeReady(effect.plan, effect.code))
                elif isinstance(effect, Up) and not isinstance(effect.report, Seated):
                    reports.append(effect.report)
        if reports:
            self._up(reports)

    def _up(self, reports: list[Report]) -> None:
        book = self.controller.state.islands[0]
        said = Reports(0, book.epoch, book.tree_number, tuple(reports))
        self._events.append(Came(0, said))


def main() -> None:
    print(f"one client, programs of one node on all devices ({PER_HOST} a host); CPU microseconds a gang")
    print(f"{'hosts':>9}{'client':>9}{'controller':>12}{'executor':>10}{'in all':>8}{'start-up':>11}")
    for hosts in (64, 512, 25_000, 250_000):
        start = process_time()
        bench = OneClient(hosts)
        ready = process_time() - start
        before = bench.gangs
        bench.run(2_000)
        gangs = bench.gangs - before - 1
        each = {name: 1e6 * spent / gangs for name, spent in bench.spent.items()}
        print(
            f"{hosts:>9,}{each['client']:>9.1f}{each['controller']:>12.1f}{each['executor']:>10.1f}"
            f"{sum(each.values()):>8.1f}{ready:>9.2f} s"
        )

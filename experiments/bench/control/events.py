"""Measures events and gangs per CPU second, of the controller with 512 hosts and of one host's executor.

The baseline is a naive controller: for each gang one message to each host and one completion from each, counted in a
set. Both put the same gangs on the same 2,048 devices.
"""

from __future__ import annotations

import time
from statistics import median

import msgspec

from core.controller import Config, Controller
from core.host import Executor
from core.model import Arg, Computation, Node, Out, Program, Ref, Sharding, SliceSpec, Value, small, spans
from core.protocol import (
    Came,
    Compiled,
    CompileStep,
    Done,
    Effect,
    Event,
    Finished,
    FormWorld,
    GangStep,
    Join,
    Launch,
    Open,
    Ordered,
    Reform,
    Reformed,
    Register,
    Release,
    Report,
    Reports,
    Seat,
    Seated,
    Send,
    Submit,
    WorldUp,
)
from core.schedule.policy import Stride

from . import one_client

HOSTS, PER_HOST, REPEATS = 512, 4, 5
DEVICES = HOSTS * PER_HOST
CLIENT = 1


def chain(nodes: int) -> Program:
    """The shape of the paper's figure 5: each output is the next input, on all devices."""
    value = Value((DEVICES,), "int8", 0, Sharding(((0,),)))
    refs: list[Ref] = [Arg(0), *(Out(node) for node in range(nodes))]
    made = tuple(Node(f"step {n}", 0, 0, (refs[n],), (value,), (value,), (0,)) for n in range(nodes))
    step = Computation("step", "step", 10_000)
    slices = (SliceSpec("all", DEVICES),)
    return Program("chain", slices, (step,), (value,), made, (Out(nodes - 1),), donate_args=(0,))


class Cluster:
    """A controller, and hosts that complete every command at once. Only the controller's time is measured."""

    def __init__(self) -> None:
        self.controller = Controller(small(HOSTS, PER_HOST), Stride, Config(window=16))
        self.events, self.spent = 0, 0.0
        self.told: list[Ordered | Seat] = []  # to host 0
        for host in range(HOSTS):
            self.say(HOSTS + host, Join(host, 0))

    def say(self, peer: int, message: msgspec.Struct) -> None:
        work: list[Event] = [Came(peer, message)]
        while work:
            start = time.process_time()
            made = self.controller.handle(work.pop(0), 0)
            self.spent += time.process_time() - start
            self.events += 1
            for effect in made:
                if isinstance(effect, FormWorld):
                    work.append(WorldUp(effect.island, effect.epoch))
                elif isinstance(effect, Send):
                    for to in effect.peers:
                        work += self.answer(to, effect.message)

    def answer(self, peer: int, message: msgspec.Struct) -> list[Event]:
        if peer == HOSTS and isinstance(message, Ordered | Seat):
            self.told.append(message)
        if isinstance(message, Seat):
            return [Came(peer, Seated(message.host, message.epoch, message.tree, message.last))]
        if not isinstance(message, Ordered):
            return []
        below = self.controller.state.islands[0].stream.shape.below(peer - HOSTS)
        reports: list[Report] = []
        for step in message.steps:
            if isinstance(step, CompileStep):
                reports += [Compiled(step.plan, code, below) for code in step.codes]
            elif isinstance(step, GangStep):
                reports.append(Done(step.seq, spans.meet(step.hosts, below)))
        return (
            [Came(peer, Reports(message.island, message.epoch, message.tree, tuple(reports)))]
            if reports
            else []
        )


def controller(nodes: int, runs: int) -> tuple[float, float, list[Ordered | Seat]]:
    """(gangs, events) a CPU second, and the messages to host 0."""
    cluster = Cluster()
    cluster.say(CLIENT, Open("client"))
    cluster.say(CLIENT, Register(1, chain(nodes)))
    cluster.say(CLIENT, Submit(1, 1, (bytes(DEVICES),), (1,)))
    cluster.events, cluster.spent = 0, 0.0
    for run in range(2, runs + 2):
        cluster.say(CLIENT, Submit(run, 1, (run - 1,), (run,)))
    events, spent = cluster.events, cluster.spent
    cluster.say(CLIENT, Release((runs + 1,)))
    return runs * nodes / spent, events / spent, cluster.told


def naive(gangs: int) -> float:
    """Gangs a CPU second of a controller that exchanges messages with every host for every gang."""
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Done)
    start = time.process_time()
    for seq in range(gangs):
        sent = [encoder.encode(GangStep(seq, 1, 0, spans.one(host))) for host in range(HOSTS)]
        waiting = set(range(len(sent)))
        for host in range(HOSTS):
            done = decoder.decode(encoder.encode(Done(seq, spans.one(host))))
            waiting.discard(done.hosts[0][0])
        assert not waiting
    return gangs / (time.process_time() - start)


def executor(told: list[Ordered | Seat]) -> tuple[float, float]:
    """(gangs, events) a CPU second of host 0's executor, given the controller's messages."""
    machine = Executor(0, small(HOSTS, PER_HOST))
    gangs = events = 0
    start = time.process_time()
    for message in told:
        work: list[Effect | Ordered | Seat] = [message]
        while work:
            for effect in machine.handle(work.pop(0), 0):
                if isinstance(effect, Reform):
                    work.append(Reformed(effect.epoch))
                elif isinstance(effect, Launch):
                    gangs += 1
                    work.append(Finished(effect.seq))
            events += 1
    spent = time.process_time() - start
    return gangs / spent, events / spent


def main() -> None:
    print(f"{HOSTS} hosts, {DEVICES} devices; median of {REPEATS}; per CPU second")
    base = median(naive(60) for _ in range(REPEATS))
    print(f"{'':34}{'gangs':>10}{'events':>10}{'x naive':>9}")
    print(f"{'naive: a message a host and gang':34}{base:>10,.0f}{'':>10}{1:>9.1f}")
    for name, nodes, runs in (
        ("controller, 1 node a call", 1, 400),
        ("controller, 128 nodes a call", 128, 8),
    ):
        found = [controller(nodes, runs) for _ in range(REPEATS)]
        gangs, events = median(f[0] for f in found), median(f[1] for f in found)
        print(f"{name:34}{gangs:>10,.0f}{events:>10,.0f}{gangs / base:>9.1f}")
        ran = [executor(f[2]) for f in found]
        gangs, events = median(r[0] for r in ran), median(r[1] for r in ran)
        print(f"{'executor, the same gangs':34}{gangs:>10,.0f}{events:>10,.0f}")
    one_client.main()

"""Runs a workload again in a simulation: one simulated client for each recorded client makes the same calls.

Closed loop: a client that waited for runs in the record waits for the same runs here (and for contents that it fetched
of them), and makes its next call after the recorded think time. Open loop: each call is made at its recorded time.

    submit --think--> submit, waited for runs 3, 4 --(3 and 4 have ended here)--think--> submit ...

Think time includes the client's own cost of the call, so that it is charged once. Older logs, and calls such as puts
and releases, have no recorded think time. For these it is the time between the awaited end and the call, as the
controller saw both, less the model's time for the message to the client and the call back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import simpy

from core.client import Blocked, Client
from core.model import Impossible, ranges
from core.protocol import effects as e
from core.protocol import messages as m
from core.transfer import CHUNK
from sim.engine import Noise, Stuck
from sim.hosts import RareTimes
from sim.simulation import MIB, Simulation

from . import report
from .call_durations import ComputationTime, Which, kernels, told_apart
from .recorded_places import keeping
from .settings import Settings, check
from .workload import RecordedCall, RecordedClient, Workload, anywhere


class WhatifResult:
    """The result of one simulation."""

    def __init__(self, settings: Settings, simulation: Simulation) -> None:
        self.settings, self.simulation = settings, simulation
        self.trace, self.setup = simulation.trace, simulation.setup


# By so much two runs of one program differ on a quiet machine.
VARIES = Noise(latency=50_000, compute=0.02)


def run(recorded: Workload, settings: Settings, took: dict[Which, ComputationTime], seed: int = 0) -> WhatifResult:
    """`seed`: 0, or one that makes messages and gangs take a little longer (`VARIES`), each time others."""
    check(recorded, settings)
    times = RareTimes(pcie_latency=settings.setup.chips[0].pcie_latency, compile=recorded.compiling)
    measured = settings.setup.profile is not None  # a calibrated cluster also has the backend's chunks
    alone = any(spec.exclusive for _, spec in recorded.slices())  # then the policy says which slice has devices when
    same = settings.setup.cluster == recorded.cluster and not settings.free and not alone
    make = keeping(settings.make, recorded.places) if same else settings.make
    sim = Simulation(
        settings.setup, policy=make, profile=settings.profile, config=settings.config, times=times,
        chunk=CHUNK if measured else 16 * MIB, seed=seed, noise=VARIES if seed else None,
    )  # fmt: skip
    sim.kernels.update(kernels(took))
    ways = Ways.of(sim)
    weights = settings.weights or tuple(person.weight for person in recorded.people)
    actors = [
        Actor(sim, person, weight, settings, recorded.start, ways)
        for person, weight in zip(recorded.people, weights, strict=True)
    ]
    for actor in actors:
        sim.env.process(actor.live())
    try:
        sim.run(until=lambda: all(actor.over for actor in actors))
    except Stuck as stuck:
        raise Impossible(f"under {settings.title}: {stuck}") from None
    return WhatifResult(settings, sim)


def fitted(recorded: Workload, same: Settings, took: dict[Which, ComputationTime]) -> tuple[Settings, WhatifResult]:
    """The record's settings, and a simulation under them. A log does not say whether hosts waited for each other in
    collectives. Those of `timed` devices do not: it is believed if makespan and medians come twice as near then."""
    record = report.of_record(recorded, took)

    def tried(settings: Settings) -> tuple[float, WhatifResult]:
        world = run(recorded, settings, took)
        errors = report.errors(record, report.of_world(world)).items()
        return sum(abs(error) for (_, what), error in errors if what != "p99 latency"), world

    apart = same._replace(alone=True)
    off, together = tried(same)
    if same.setup.cluster.hosts == 1 or not off:
        return same, together
    nearer, alone = tried(apart)
    return (apart, alone) if nearer < off / 2 else (same, together)


class Ways(NamedTuple):
    """The model's times of messages between the controller and a client, without the call's own cost."""

    note: int  # a run has ended, as the controller sees it -> its user knows
    call: int  # a call is made -> the controller hears it
    landed: int  # contents are with a client -> the controller hears of it, by way of a host

    @classmethod
    def of(cls, sim: Simulation) -> Ways:
        latency, costs = sim.setup.dcn.latency, sim.profile
        call = latency + costs.receive
        return cls(costs.send + latency + costs.client_note, call, 2 * call + costs.send)

    def thinking(self, made: RecordedCall) -> int:
        """The think time within a call's recorded gap."""
        if not made.waited:
            return made.gap
        return max(0, made.gap - self.call + (self.landed if made.contents else -self.note))


class Actor:
    def __init__(
        self, sim: Simulation, person: RecordedClient, weight: int, settings: Settings, start: int, ways: Ways
    ) -> None:
        self._sim, self._person, self._weight, self._settings = sim, person, weight, settings
        self._start, self._ways = start, ways
        self.over = False
        self._programs: dict[int, int] = {}  # its name in the record -> its name here
        self._buffers: dict[int, int] = {}
        self._runs: dict[int, int] = {}
        self._makers: dict[int, int] = {}  # buffer -> the run that makes it, both of the record
        self._ended: dict[int, int] = {}  # run -> when
        self._open: dict[int, None] = {}  # runs that have not ended
        self._gets: dict[int, int] = {}  # requests under way -> the run that makes it, of the record
        # releases that leave with the next call, in one turn: by itself, each would take up a message under way
        self._riding: list[RecordedCall] = []
        self._submitted = self._since = 0  # when its user last submitted; and last submitted or stopped waiting
        self._news = sim.env.event()  # the client's next

    # --- what it does -------------------------------------------------------------------------------------

    def live(self) -> Generator[simpy.Event, Any, None]:
        person, sim = self._person, self._sim
        yield from self._until(person.opened - self._start)
        self.client = sim.client(person.name, self._weight, person.priority)
        self.client.on_effect = self._hear
        self._since = self._submitted = sim.now
        for made, after in zip_longest(person.calls, person.calls[1:]):
            if after is not None and isinstance(made.call, m.Release) and made.at == after.at:
                self._riding.append(made)
                continue
            if self._settings.open_loop:
                due = made.at - self._start
            else:
                yield from self._wait_for(made.waited)
                due = self._due(made)
            yield from self._until(due - sim.profile.client_call)
            yield from self._call(made)
        while self._open or self._gets:
            yield self._news
        if person.left:
            self.client.act(lambda client, now: client.close(now))
        self.over = True

    def _wait_for(self, runs: Sequence[int]) -> Generator[simpy.Event, Any, None]:
        """Wait for the ends of these recorded runs, and for contents fetched of their results."""
        if not runs:
            return
        names = [self._runs[run] for run in runs]
        while any(name in self._open for name in names) or any(run in runs for run in self._gets.values()):
            yield self._news
        self._since = max(self._since, *(self._ended[name] for name in names))

    def _due(self, made: RecordedCall) -> int:
        """When to make the call, given that the runs it waited for have ended now."""
        call, seen = made.call, self._ways.thinking(made)
        if made.crowded:
            return self._since  # this simulation decides whether there is room
        if isinstance(call, m.Submit):
            return self._since + (seen if made.waited and not call.think else int(call.think))
        if made.before is not None:  # it must not delay the later call whose time is known
            think, calls = made.before
            seen = min(seen, think - calls * self._sim.profile.client_call)
        return (self._since if made.waited else self._submitted) + seen

    def _until(self, when: int) -> Generator[simpy.Event, Any, None]:
        if when > self._sim.now:
            yield self._sim.env.timeout(when - self._sim.now)

    def _call(self, made: RecordedCall) -> Generator[simpy.Event, Any, None]:
        act = self._act(made)

        def turn(client: Client, now: int) -> Any:
            while self._riding:
                self._act(self._riding.pop(0))(client, now)
            return act(client, now)

        while True:
            yield from self.client.turn()
            answer = self.client.act(turn)
            if not isinstance(answer, Blocked):
                break
            yield self._news
        if isinstance(made.call, m.Submit):
            self._since = self._submitted = self._sim.now
        self._made(made.call, answer)

    def _act(self, made: RecordedCall) -> Callable[[Client, int], Any]:
        """The same call, with the names of this simulation."""
        match made.call:
            case m.Register(ir=ir, tell=tell):
                program = told_apart(ir, self._settings.alone)
                if self._settings.free:
                    slices = tuple(anywhere(spec) for spec in ir.slices)
                    program = msgspec.structs.replace(program, slices=slices)
                return lambda client, now: client.register(program, now, tell=tell)
            case m.Unregister(program=name):
                return lambda client, now: client.unregister(self._programs[name], now)
            case m.Submit():
                return self._submit(made)
            case m.Put(value=value, slice=spec):
                where = anywhere(spec) if self._settings.free else spec
                return lambda client, now: client.put(value, where, now)
            case m.View(value=value, slice=spec, shards=shards):
                on = anywhere(spec) if self._settings.free else spec
                here = tuple((self._buffers[source], shard) for source, shard in shards)
                return lambda client, now: client.view(value, on, here, now)
            case m.Get(buffer=buffer, shard=shard):
                return lambda client, now: client.get(self._buffers[buffer], now, shard)
            case m.Release(buffers=buffers):
                return lambda client, now: client.release(
                    tuple(self._buffers[each] for each in ranges.each(buffers)), now
                )
            case m.ReleaseSlice(name=slice_name):
                return lambda client, now: client.release_slice(slice_name, now)
            case m.Cancel(run=run):
                return lambda client, now: client.cancel(self._runs[run], now)
            case m.StopRun(run=run):
                return lambda client, now: client.stop(self._runs[run], now)
            case _:
                raise NotImplementedError(made.call)

    def _submit(self, made: RecordedCall) -> Callable[[Client, int], Any]:
        """A submit with the same deadline relative to its call."""
        call: m.Submit = made.call
        args = tuple(self._buffers[arg] if isinstance(arg, int) else arg for arg in ranges.each(call.args))
        keep = tuple(bool(name) for name in ranges.each(call.results))
        dispatch = self._settings.dispatch or call.dispatch
        return lambda client, now: client.submit(
            self._programs[call.program], args, now, keep=keep, dispatch=dispatch,
            deadline=max(1, now + call.deadline - made.at) if call.deadline else 0,
        )  # fmt: skip

    def _made(self, call: Any, answer: Any) -> None:
        match call:
            case m.Register(program=name):
                self._programs[name] = answer
            case m.Submit(run=run, results=results):
                self._runs[run] = answer.run
                self._open[answer.run] = None
                for name, here in zip(ranges.each(results), answer.results, strict=True):
                    if name:
                        self._buffers[name] = here
                        self._makers[name] = run
            case m.Put(buffer=name) | m.View(buffer=name):
                self._buffers[name] = answer
            case m.Get(buffer=name):
                self._gets[answer] = self._makers.get(name, -1)
            case _:
                pass

    # --- what it hears ------------------------------------------------------------------------------------

    def _hear(self, effect: e.Command) -> None:
        match effect:
            case e.RunEnded(run=run):
                self._open.pop(run, None)
                self._ended[run] = self._sim.now
            case e.Received(request=request):
                run = self._runs.get(self._gets.pop(request, -1), -1)
                self._ended[run] = self._sim.now  # a wait for it ends only when its contents are there
            case e.CallRefused(what="get", name=request):
                self._gets.pop(request, None)
            case e.Unblocked():
                pass
            case _:
                return
        news, self._news = self._news, self._sim.env.event()
        news.succeed()

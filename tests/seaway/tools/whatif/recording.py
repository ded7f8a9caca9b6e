"""A simulated controller that keeps its event log, and users that call it: a record whose whole truth is known.

Hosts are simulated exactly: a controller that replays the log expects a tree of hosts, not a cohort with one root.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import simpy

from backend.server import eventlogs
from core.client.client_limits import Blocked, Submitted
from core.controller import Config
from core.model.place import line
from core.model.plan import laid_out
from core.model.program import Out, Program
from core.model.resharding import Shards
from core.protocol import effects as e
from core.record.eventlog import Recorder
from core.schedule.policy import Fifo, Policy
from sim.hardware.kernels import Kernel
from sim.hardware.profiles import profile
from sim.hardware.setups import Setup, load
from sim.hosts.context import RareTimes
from sim.hosts.processes import ControllerProcess
from sim.simulation import simulation
from sim.simulation.simulation import Simulation

MS = 1_000_000


class Recorded:
    """A recorded simulation. Tests add users, `run` it, and `save` its log."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, policy: Callable[[], Policy] = Fifo, hosts: int = 2,
        devices_per_host: int = 2, islands: int = 1, config: Config | None = None, compiles: int = 0,
    ) -> None:  # fmt: skip
        self.setup: Setup = load(
            {
                "name": "t",
                "island": [{"name": "i", "count": islands, "hosts": hosts, "devices_per_host": devices_per_host}],
            }
        )
        self.config = config or Config(fanout=4)
        about = eventlogs.about(self.setup.cluster, self.config, policy, 0)

        def recording(sim: Any, machine: Any) -> ControllerProcess:
            self.recorder = Recorder(machine, about)
            return ControllerProcess(sim, self.recorder)  # type: ignore[arg-type]

        with patch.context() as patched:
            patched.setattr(simulation, "ControllerProcess", recording)
            self.sim = Simulation(
                self.setup, policy=policy, profile=profile("seaway"), config=self.config, fidelity="exact",
                times=RareTimes(compile=compiles, pcie_latency=self.setup.chips[0].pcie_latency),
            )  # fmt: skip
        self.people: list[SimulatedUser] = []

    def person(self, name: str, program: Program, **habits: Any) -> SimulatedUser:
        self.people.append(SimulatedUser(self.sim, name, program, **habits))
        return self.people[-1]

    def takes(self, key: str, nanoseconds: int) -> None:
        """Set the real durations of its devices, whatever the program states."""
        self.sim.kernels[key] = Kernel(key, nanoseconds)

    def run(self) -> Recorded:
        for person in self.people:
            self.sim.env.process(person.live())
        self.sim.run(until=lambda: all(person.over for person in self.people))
        self.sim.run(until=self.sim.now + MS)  # the controller has received their goodbyes
        return self

    def log(self) -> bytes:
        return self.recorder.log()

    def save(self, path: Path) -> Path:
        import gzip

        path.write_bytes(gzip.compress(self.log(), mtime=0))
        return path


class SimulatedUser:
    """Submits `runs`. With `waits`, it submits the next when the last has ended and the user has thought; else all at
    once."""

    def __init__(
        self, sim: Simulation, name: str, program: Program, *, runs: int = 10, waits: bool = True, think: int = 0,
        weight: int = 1, fetch: bool = False, starts: int = 0, told_late: bool = False, views: bool = False,
    ) -> None:  # fmt: skip
        self.sim, self.name, self.program, self.weight = sim, name, program, weight
        self.runs, self.waits, self.think, self.fetch, self.starts = runs, waits, think, fetch, starts
        self.views = views  # of each result, in place of the result
        self.told_late = told_late  # the library reports a wait only when it submits
        self.over = False
        self.ended: dict[int, int] = {}
        self.fetched = 0
        self.news = sim.env.event()

    def live(self) -> Generator[simpy.Event, Any, None]:
        env = self.sim.env
        yield env.timeout(self.starts)
        self.client = self.sim.client(self.name, self.weight)
        self.client.on_effect = self.hear
        number = yield from self.call(lambda c, now: c.register(self.program, now))
        literal = tuple(bytes(value.nbytes) for value in self.program.args)
        waited: list[int] = []
        for turn in range(self.runs):
            made: Submitted = yield from self.call(partial(self._submit, number, literal, waited))
            waited, result = [], made.results[0]
            if self.views:
                view = yield from self.call(partial(self._view, result))
                yield from self.call(partial(_release, result))
                result = view
            if self.fetch:
                yield from self.call(partial(_get, result))
            if self.waits:
                while made.run not in self.ended or (self.fetch and self.fetched <= turn):
                    yield self.news
                if self.told_late:
                    waited = [made.run]
                else:
                    self.client.client.waited(made.run, self.sim.now)
                yield env.timeout(self.think)
            yield from self.call(partial(_release, result))
        while len(self.ended) < self.runs:
            yield self.news
        self.client.act(lambda c, now: c.close(now))
        self.over = True

    def _submit(self, number: int, literal: Any, waited: list[int], client: Any, now: int) -> Any:
        for run in waited:
            client.waited(run, now)
        return client.submit(number, literal, now)

    def _view(self, result: int, client: Any, now: int) -> Any:
        """The same array once more."""
        ref = self.program.results[0]
        assert isinstance(ref, Out)
        value, where = self.program.nodes[ref.node].outputs[ref.output], self.program.slices[0]
        shards = Shards(laid_out(value, where, line(0, 0, where.devices)))
        numbers = [shards.ordinal(shards.shard_of(device)) for device in range(where.devices)]
        return client.view(value, where, tuple((result, number) for number in numbers), now)

    def call(self, act: Any) -> Any:
        while True:
            yield from self.client.turn()
            answer = self.client.act(act)
            if not isinstance(answer, Blocked):
                return answer
            yield self.news

    def hear(self, effect: e.Command) -> None:
        if isinstance(effect, e.RunEnded):
            assert effect.blame is None, effect.blame
            self.ended[effect.run] = self.sim.now
        elif isinstance(effect, e.Received):
            self.fetched += 1
        news, self.news = self.news, self.sim.env.event()
        news.succeed()


def _get(buffer: int, client: Any, now: int) -> Any:
    return client.get(buffer, now)


def _release(buffer: int, client: Any, now: int) -> Any:
    return client.release((buffer,), now)

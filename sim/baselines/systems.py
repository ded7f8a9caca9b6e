"""The models of other systems, by name, and `run`, which measures one.

*jax*: multi-controller JAX. Every host runs the same Python, and enqueues on its own devices over PCIe; only
collectives join the hosts. A call returns when its work is enqueued; at most `ahead` calls are unfinished. Op by op,
Python's cost is paid for each computation; a fused program pays it once for all of them.

*tf1*: a single controller like TensorFlow 1's: a blocking call, and a central barrier after each computation. The graph
has a node for each shard, so M x N control edges join one computation to the next, and the controller counts them down.
It tells each host to run its shards, waits for a report from each, and only then begins the next.

*ray*: a driver like Ray's, which calls one actor on each host; arguments and results live in each host's memory. An
actor takes its argument from the object store, copies it to its devices, runs, waits, copies the result back and puts
it into the store. A host's calls run one after the other, and its devices wait meanwhile. The driver calls a chain
without waiting: each call gets a reference to the result of the previous one.
"""

from collections.abc import Mapping

import numpy as np
import simpy

from core.model import Impossible

from ..engine import Ints
from ..hardware import Profile, Setup, nearest
from .baseline_work import BaselineWork, Model, Outcome, costs_of


class JaxSystem(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        if self.work.mode == "chained":
            raise Impossible("JAX has no programs of several computations; its modes are opbyop and fused")
        python = pcie = 0  # when each host's Python and its PCIe are free: all hosts are alike
        ended: list[simpy.Event] = []
        for call in range(calls):
            if call >= self.costs["ahead"]:
                yield ended[call - self.costs["ahead"]]
            python = max(python, int(self.env.now)) + self.costs["call"]
            pcie = max(pcie, python) + self.profile.enqueue
            end = self.launched(pcie + self.pcie)
            self.ends.append(end)
            ended.append(self.until(end))
            yield self.until(python)
        yield ended[-1]


class Tf1System(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        profile = self.profile
        there = profile.client_call + self.latency + profile.receive + self.costs["session"]
        back = profile.send + self.latency + profile.client_note
        for _ in range(calls):
            yield self.env.timeout(there)
            for node in range(self.work.launches):
                if node:
                    yield self.env.timeout(self.costs["edge"] * self.devices**2)
                yield self.until(self._computation(int(self.env.now)))
            self.ends.append(int(self.env.now))
            yield self.env.timeout(back)

    def _computation(self, now: int) -> int:
        """Runs one computation: from the controller's messages to all hosts until it has the reports of all."""
        profile = self.profile
        told = one_by_one(now + profile.step, profile.send, self.hosts) + self.latency
        enqueued = told + profile.receive + profile.prepare + profile.enqueue + self.pcie
        end = self.launched(int(enqueued.max()))
        reported = end + self.pcie + profile.complete + profile.send + self.latency
        return reported + self.hosts * profile.receive


class RaySystem(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        costs, launches = self.costs, self.work.launches
        free = 0  # when each actor is free
        way = max(self.latency, costs["trip"] // 2)
        for _ in range(calls):
            now = int(self.env.now)
            for launch in range(launches):
                begun = now + launch * self.hosts * costs["submit"]
                free = self._act(np.maximum(one_by_one(begun, costs["submit"], self.hosts) + way, free))
            yield self.until(free + way + self.hosts * costs["wait"])
            self.ends.append(int(self.env.now))

    def _act(self, begun: Ints) -> int:
        """Runs each actor's method; returns when the actors are free again."""
        costs = self.costs
        copy = self.pcie + int(self.host_bytes * 1e9 / self.pcie_bandwidth)
        ready = begun + costs["get"] + copy + costs["call"] + self.profile.enqueue + self.pcie
        end = self.launched(int(ready.max()))
        return end + self.pcie + self.profile.complete + copy + costs["put"]


def one_by_one(start: int, cost: int, hosts: int) -> Ints:
    """When each host has been served by a thread that begins at `start`."""
    return start + cost * np.arange(1, hosts + 1, dtype=np.int64)


SYSTEMS: dict[str, type[Model]] = {"jax": JaxSystem, "tf1": Tf1System, "ray": RaySystem}


def run(
    system: str, setup: Setup, work: BaselineWork, profile: Profile, *, calls: int = 30,
    costs: Mapping[str, int] | None = None,
) -> Outcome:  # fmt: skip
    """The outcome of `calls` calls of the program, one after another."""
    if system not in SYSTEMS:
        raise Impossible(f"no baseline {system!r}; {nearest(system, SYSTEMS)}")
    if calls < 3:
        raise Impossible(f"{calls} calls are too few for a steady rate; run at least 3")
    model = SYSTEMS[system](setup, work, profile, costs or costs_of(system))
    model.env.run(until=model.env.process(model.program(calls)))
    return Outcome(system, model.hosts, model.devices, work.computations, tuple(model.ends))

"""A driver like Ray's: it calls one actor on each host; arguments and results live in each host's memory.

An actor takes its argument from the object store, copies it to its devices, runs, waits, copies the result back
and puts it into the store. A host's calls run one after the other, and its devices wait meanwhile. The driver calls a
chain without waiting: each call gets a reference to the result of the previous one.
"""

from __future__ import annotations

import numpy as np
import simpy

from .baseline_work import Model
from .fans import Jitter, one_by_one, served


class RaySystem(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        costs, launches = self.costs, self.work.launches
        jitter = Jitter(self.noise.latency, self.seed, self.hosts)
        free = np.zeros(self.hosts, np.int64)  # when each actor is free
        way = max(self.latency, costs["trip"] // 2)
        for _ in range(calls):
            now = int(self.env.now)
            for launch in range(launches):
                begun = now + launch * self.hosts * costs["submit"]
                called = one_by_one(begun, costs["submit"], self.hosts) + way + jitter.draw()
                free = self._act(np.maximum(called, free))
            yield self.until(served(free + way + jitter.draw(), costs["wait"]))
            self.ends.append(int(self.env.now))

    def _act(self, begun: np.ndarray) -> np.ndarray:
        """Runs each actor's method; returns when each actor is free again."""
        costs = self.costs
        copy = self.pcie + int(self.host_bytes * 1e9 / self.pcie_bandwidth)
        ready = begun + costs["get"] + copy + costs["call"] + self.profile.enqueue + self.pcie
        end = self.launched(int(ready.max()))
        return np.full(self.hosts, end + self.pcie + self.profile.complete + copy + costs["put"], np.int64)

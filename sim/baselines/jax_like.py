"""Multi-controller JAX: every host runs the same Python, and enqueues on its own devices over PCIe.

Only collectives join the hosts. A call returns when its work is enqueued; at most `ahead` calls are unfinished.
Op by op, Python's cost is paid for each computation; a fused program pays it once for all of them.
"""

from __future__ import annotations

import numpy as np
import simpy

from core.model import Impossible

from .baseline_work import Model
from .fans import Jitter


class JaxSystem(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        if self.work.mode == "chained":
            raise Impossible("JAX has no programs of several computations; its modes are opbyop and fused")
        python = np.zeros(self.hosts, np.int64)  # when each host's Python is free
        pcie = np.zeros(self.hosts, np.int64)
        jitter = Jitter(self.noise.latency, self.seed, self.hosts)
        ended: list[simpy.Event] = []
        for call in range(calls):
            if call >= self.costs["ahead"]:
                yield ended[call - self.costs["ahead"]]
            python = np.maximum(python, int(self.env.now)) + self.costs["call"] + jitter.draw()
            pcie = np.maximum(pcie, python) + self.profile.enqueue
            end = self.launched(int(pcie.max()) + self.pcie)
            self.ends.append(end)
            ended.append(self.until(end))
            yield self.until(int(python.min()))
        yield ended[-1]

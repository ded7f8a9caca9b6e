"""A single controller like TensorFlow 1's: a blocking call, and a central barrier after each computation.

The graph has a node for each shard, so M x N control edges join one computation to the next, and the controller
counts them down. It tells each host to run its shards, waits for a report from each, and only then begins the next.
"""

from __future__ import annotations

import simpy

from .baseline_work import Model
from .fans import Jitter, one_by_one, served


class Tf1System(Model):
    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        profile, jitter = self.profile, Jitter(self.noise.latency, self.seed, self.hosts)
        there = profile.client_call + self.latency + profile.receive + self.costs["session"]
        back = profile.send + self.latency + profile.client_note
        for _ in range(calls):
            yield self.env.timeout(there)
            for node in range(self.work.launches):
                if node:
                    yield self.env.timeout(self.costs["edge"] * self.devices**2)
                yield self.until(self._computation(int(self.env.now), jitter))
            self.ends.append(int(self.env.now))
            yield self.env.timeout(back)

    def _computation(self, now: int, jitter: Jitter) -> int:
        """Runs one computation: from the controller's messages to all hosts until it has the reports of all."""
        profile = self.profile
        told = one_by_one(now + profile.step, profile.send, self.hosts) + self.latency + jitter.draw()
        enqueued = told + profile.receive + profile.prepare + profile.enqueue + self.pcie
        end = self.launched(int(enqueued.max()))
        reports = end + self.pcie + profile.complete + profile.send + self.latency + jitter.draw()
        return served(reports, profile.receive)

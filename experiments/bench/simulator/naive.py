"""The baseline of `bench simulator`: a naive model of the system, as one would first write it with SimPy.

Each host is a process with a `Store` as mailbox, each message a process, each network card a `Resource`. A client keeps
two steps outstanding. A step is a message to each host, an enqueue over PCIe there, a gang that starts when the last
host is ready and the devices are free, and a completion from each host. It has no scheduler, memory or failures, so it
does less than the simulator it is compared with.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import simpy

US = 1_000
NIC, LATENCY, JITTER, PCIE, COMPUTE = 200, 10 * US, 8 * US, 5 * US, 350 * US
OUTSTANDING = 2

Process = Generator[simpy.Event, Any, None]


class Counted(simpy.Environment):
    """An environment that counts events put on its heap."""

    events = 0

    def schedule(self, event: simpy.Event, *args: Any, **kwargs: Any) -> None:
        self.events += 1
        super().schedule(event, *args, **kwargs)


class Naive:
    def __init__(self, hosts: int, seed: int = 0, env: simpy.Environment | None = None) -> None:
        self.env = env if env is not None else simpy.Environment(initial_time=0)
        self.hosts = hosts
        self._random = Random(seed)
        self._nic = simpy.Resource(self.env)  # the scheduler's
        self._nics = [simpy.Resource(self.env) for _ in range(hosts)]
        self._pcie = [simpy.Resource(self.env) for _ in range(hosts)]
        self._inboxes = [simpy.Store(self.env) for _ in range(hosts)]
        self._calls, self._reports = simpy.Store(self.env), simpy.Store(self.env)
        self._missing: dict[int, int] = {}  # by step: hosts that are not ready
        self._devices_free = 0
        self.ends: list[int] = []  # of each step, at its client

    def run(self, steps: int) -> list[int]:
        self.start(steps)
        self.env.run(until=self.over)
        return self.ends

    def start(self, steps: int) -> None:
        """Start the processes. The event `begun` is the first step's end; `over` is the last one's."""
        self.begun = self.env.event()
        for host in range(self.hosts):
            self.env.process(self._host(host))
        self.env.process(self._scheduler())
        self.over = self.env.process(self._client(steps))

    def _client(self, steps: int) -> Process:
        missing: dict[int, int] = {}
        sent = 0
        while len(self.ends) < steps:
            while sent < min(steps, len(self.ends) + OUTSTANDING):
                missing[sent] = self.hosts
                yield self._calls.put(sent)
                sent += 1
            step = yield self._reports.get()
            missing[step] -= 1
            if not missing[step]:
                del missing[step]
                self.ends.append(int(self.env.now))
                if len(self.ends) == 1:
                    self.begun.succeed()

    def _scheduler(self) -> Process:
        while True:
            step = yield self._calls.get()
            self._missing[step] = self.hosts
            for inbox in self._inboxes:
                self.env.process(self._message(self._nic, inbox, step))

    def _message(self, nic: simpy.Resource, mailbox: simpy.Store, what: int) -> Process:
        with nic.request() as mine:
            yield mine
            yield self.env.timeout(NIC)
        yield self.env.timeout(LATENCY + self._random.randrange(JITTER + 1))
        yield mailbox.put(what)

    def _host(self, host: int) -> Process:
        inbox, pcie = self._inboxes[host], self._pcie[host]
        while True:
            step = yield inbox.get()
            with pcie.request() as mine:
                yield mine
                yield self.env.timeout(PCIE)
            self._missing[step] -= 1
            if not self._missing[step]:
                del self._missing[step]
                self.env.process(self._gang(step))

    def _gang(self, step: int) -> Process:
        """A gang on all devices. They are always free at the same time, so one number holds it."""
        now = int(self.env.now)
        end = self._devices_free = max(now, self._devices_free) + COMPUTE
        yield self.env.timeout(end - now)
        for nic in self._nics:
            self.env.process(self._message(nic, self._reports, step))

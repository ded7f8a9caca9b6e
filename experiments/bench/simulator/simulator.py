"""Measures the simulator: gang steps per CPU second through `sw.simulate`, with core's scheduler and a stride policy.

`python -m experiments.bench simulator`. A client makes calls of one computation on all devices and keeps three
unfinished. The baseline is `Naive`, a simple model with a process a host, and without scheduler, memory or failures.
Each play runs in a process of its own, whose peak memory is printed. Naive model and ours take turns, and a row is that
of three rounds which has the median ratio. Start-up is not in the rates, but printed beside them.
"""

import resource
import sys
from collections.abc import Callable, Generator, Sequence
from random import Random
from time import process_time
from typing import Any

import simpy

from ..frame import options, processes
from ..frame.options import Table

HOSTS = (64, 512, 4096, 25_000)
PER_HOST = 4
STEPS = {64: 1000, 512: 1000, 4096: 300, 25_000: 100}  # of ours
NAIVE_STEPS = {64: 200, 512: 30, 4096: 5, 25_000: 3}
AIMS = {512: 300, 25_000: 5000}  # times the naive model
ROUNDS = 3  # since a shared machine changes its speed
PATIENCE = 400  # seconds for a play
LATE = f"  not within {PATIENCE} s"
AHEAD = 3  # calls unfinished


# --- in a process of its own ------------------------------------------------------------------------------------


def ours(hosts: int, gangs: int) -> dict[str, Any]:
    """The first call counts as start-up, since it chooses devices and imports libraries."""
    import seaway as sw

    begun = process_time()
    with sw.simulate("A", hosts=hosts, policy="stride", profile="paper") as session:
        step = sw.synthetic("step", devices=sw.slice(devices=hosts * PER_HOST), duration="350us")

        def client() -> float:
            waiting = [step()]
            waiting[0].block_until_ready()
            started = process_time()
            for _ in range(gangs - 1):
                waiting.append(step(waiting[-1]))
                if len(waiting) > AHEAD:
                    waiting.pop(0).block_until_ready()
            waiting[-1].block_until_ready()
            return started

        started: float = session.spawn(client).result()
        return {"start": started - begun, "spent": process_time() - started}


def naive(hosts: int, steps: int) -> dict[str, Any]:
    begun = process_time()
    env = Counted(initial_time=0)
    model = Naive(hosts, env=env)
    model.start(steps)
    env.run(until=model.begun)
    first, events = process_time(), env.events
    env.run(until=model.over)
    spent = process_time() - first
    return {"start": first - begun, "spent": spent, "events": (env.events - events) / (steps - 1)}


def play(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any] | None:
    """A play in a process of its own, with its peak memory in megabytes; None if it failed or took too long."""
    try:
        found: dict[str, Any] = processes.answer(weighed, work.__name__, *arguments, bound=PATIENCE)
        return found
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return None


def weighed(work: str, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = globals()[work](*arguments)
    return found | {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


# --- the baseline -------------------------------------------------------------------------------------------------
# A naive model of the system, as one would first write it with SimPy. Each host is a process with a `Store` as mailbox,
# each message a process, each network card a `Resource`. A client keeps two steps outstanding. A step is a message to
# each host, an enqueue over PCIe there, a gang that starts when the last host is ready and the devices are free, and a
# completion from each host.

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
    def __init__(self, hosts: int, env: simpy.Environment) -> None:
        self.env = env
        self.hosts = hosts
        self._random = Random(0)
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


# --- what is printed ----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    options.parser("simulator", __doc__).parse_args(arguments)
    table = Table("hosts >8,", "naive steps/s >15,.2f", "events a step >15,.0f", "ours steps/s >14,.0f",
                  "x naive >10,.0fx", "aim >8", "start-up s >12.2f", "peak RSS MB >13,.0f")  # fmt: skip
    table.begin(f"One client, one computation a call on all devices, {AHEAD} calls unfinished; stride; profile paper")
    for hosts in HOSTS:
        rounds = [(play(naive, hosts, NAIVE_STEPS[hosts]), play(ours, hosts, STEPS[hosts])) for _ in range(ROUNDS)]
        known = [(base, mine) for base, mine in rounds if base is not None and mine is not None]
        if len(known) < ROUNDS:
            table.row(hosts, LATE)
            continue
        known.sort(key=lambda pair: pair[0]["spent"] / pair[1]["spent"])
        base, mine = known[len(known) // 2]
        slow, fast = (NAIVE_STEPS[hosts] - 1) / base["spent"], STEPS[hosts] / mine["spent"]
        table.row(hosts, slow, base["events"], fast, fast / slow, AIMS.get(hosts), mine["start"], mine["rss"])

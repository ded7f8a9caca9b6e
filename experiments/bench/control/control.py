"""Measures the control plane at scale: the controller's CPU a gang, and a call's latency, with timed devices.

`python -m experiments.bench control [--full]`. The controller is a process of its own, whose CPU time is read before
and after. Hosts are agents with timed devices, many in a process. `tree`: each process writes to a few others; `flat`,
the baseline: the controller writes to all. Two cores run hundreds of hosts here, so only CPU times carry over to hosts
on machines of their own; latencies do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend.admin import cpu_of
from seaway.tools.calibrating import chained

from ..frame import options
from ..frame.deployed import Deployed, deployed
from ..frame.options import Table

FULL = True
HOSTS, ALL_HOSTS = (16, 64), (16, 64, 256, 512)
PROCESSES = 4  # processes that run all hosts
NODES = 128  # of a batched call
SINGLE, CALLS = 30, 4  # single calls and batched ones
AIMS = {16: 0.3, 512: 3.0}  # ms of the controller a gang, batched, with the tree
FLAT = 8.0  # the aim at 512 hosts: at least this many times less than flat
TREE = 23


class Cost(NamedTuple):
    """CPU milliseconds a gang, of the controller and of all agents together."""

    controller: float
    agents: float


class Spent(NamedTuple):
    """latency: milliseconds of a call, end to end. rate: batched gangs a second. All hosts are on this machine."""

    single: Cost
    batched: Cost
    latency: float
    rate: float


def measured(cluster: Deployed) -> Spent:
    import seaway as sw

    with sw.connect(cluster.address, client="bench"):
        step = sw.synthetic("step", devices=sw.slice(devices=cluster.hosts), duration="1us")
        batched, zero = chained([step] * NODES), np.float32(0)
        for call in (step, batched):
            call(zero).block_until_ready()
        latencies = []
        watch = Watch(cluster)
        for _ in range(SINGLE):
            begun = time.perf_counter()
            step(zero).block_until_ready()
            latencies.append(time.perf_counter() - begun)
        alone = watch.gang(SINGLE)
        watch, begun = Watch(cluster), time.perf_counter()
        for result in [batched(zero) for _ in range(CALLS)]:
            result.block_until_ready()
        rate = CALLS * NODES / (time.perf_counter() - begun)
        together = watch.gang(CALLS * NODES)
    return Spent(alone, together, statistics.median(latencies) * 1e3, rate)


class Watch:
    """CPU time of the cluster's processes since this was made."""

    def __init__(self, cluster: Deployed) -> None:
        self._cluster = cluster
        self._before = self._spent()

    def _spent(self) -> Cost:
        agents = sum(cpu_of(child.pid) for child in self._cluster.agents)
        return Cost(cpu_of(self._cluster.controller.pid) / 1e9, agents / 1e9)

    def gang(self, gangs: int) -> Cost:
        pairs = zip(self._spent(), self._before, strict=True)
        return Cost(*((now - before) / gangs * 1e3 for now, before in pairs))


def one(hosts: int, fanout: int) -> Spent:
    processes = min(PROCESSES, hosts)
    with deployed(hosts, processes=processes, controller=["--fanout", str(fanout)]) as cluster:
        return measured(cluster)


# --- what is printed --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("control", __doc__, full="also 256 and 512 hosts")
    parser.numbers("--hosts", HOSTS, ALL_HOSTS, "numbers of hosts")
    table(parser.read(arguments).hosts)


def table(hosts: Sequence[int]) -> None:
    rows = Table("hosts >7", "tree >9.2f", "flat >9.2f", "x >9.1fx", "tree >9.3f", "flat >9.3f", "x >9.1fx", "aim >10g",
                 "end to end, ms >18.1f", "gangs/s >9,.0f")  # fmt: skip
    rows.begin(
        f"CPU of the controller's process, ms a gang; all hosts are played by {PROCESSES} processes of this machine",
        f"{'':7}{'one call a gang':^28}{f'{NODES} gangs a call':^38}{'a call':>18}",
    )
    for number in hosts:
        tree, flat = one(number, TREE), one(number, number)
        cells: list[float] = []
        for ours, theirs in ((tree.single, flat.single), (tree.batched, flat.batched)):
            cells += ours.controller, theirs.controller, theirs.controller / max(ours.controller, 1e-9)
        rows.row(number, *cells, AIMS.get(number), tree.latency, tree.rate)
    print(f"aims: batched {AIMS} ms with the tree; at 512 hosts {FLAT:g}x less than flat")

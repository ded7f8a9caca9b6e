"""Measures the control plane at scale: the controller's CPU a gang, and a call's latency, with timed devices.

`python -m experiments.bench control [--full]`. The controller is a process of its own, whose CPU time is read before
and after. Hosts are agents with timed devices, many in a process. `tree`: each process writes to a few others; `flat`,
the baseline: the controller writes to all. Two cores run hundreds of hosts here, so only CPU times carry over to hosts
on machines of their own; latencies do not. The simulator predicts those from the measured message costs (`predicting`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from backend.admin import cpu_of
from seaway.tools.calibrating import chained

from ..frame import options
from ..frame.deployed import Deployed, deployed
from ..frame.table import Table
from .predicting import BUDGETS, KINDS, Cost, Measured, Spent, predicted, profile_of

FULL = True
HOSTS, ALL_HOSTS = (16, 64), (16, 64, 256, 512)
PROCESSES = 4  # processes that run all hosts
NODES = 128  # of a batched call
SINGLE, CALLS = 30, 4  # single calls and batched ones
AIMS = {16: 0.3, 512: 3.0}  # ms of the controller a gang, batched, with the tree
FLAT = 8.0  # the aim at 512 hosts: at least this many times less than flat
TREE = 23


def measured(cluster: Deployed) -> Spent:
    import seaway as sw

    with sw.connect(cluster.address, client="bench"):
        step = sw.synthetic("step", devices=sw.slice(devices=cluster.hosts), duration="1us")
        batched, zero = chained([step] * NODES), np.float32(0)
        for call in (step, batched):
            call(zero).block_until_ready()
        latencies = []
        watch, mine = Watch(cluster), time.process_time()
        for _ in range(SINGLE):
            begun = time.perf_counter()
            step(zero).block_until_ready()
            latencies.append(time.perf_counter() - begun)
        client, alone = time.process_time() - mine, watch.gang(SINGLE)
        watch, begun = Watch(cluster), time.perf_counter()
        for result in [batched(zero) for _ in range(CALLS)]:
            result.block_until_ready()
        rate = CALLS * NODES / (time.perf_counter() - begun)
        together = watch.gang(CALLS * NODES)
    return Spent(alone, together, client / SINGLE * 1e3, statistics.median(latencies) * 1e3, rate)


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
    chosen = parser.read(arguments)
    predictions(table(chosen.hosts))


def table(hosts: Sequence[int]) -> list[Measured]:
    rows = Table("hosts >7", "tree >9.2f", "flat >9.2f", "x >9.1fx", "tree >9.3f", "flat >9.3f", "x >9.1fx", "aim >10g",
                 "end to end, ms >18.1f", "gangs/s >9,.0f")  # fmt: skip
    rows.begin(
        f"CPU of the controller's process, ms a gang; all hosts are played by {PROCESSES} processes of this machine",
        f"{'':7}{'one call a gang':^28}{f'{NODES} gangs a call':^38}{'a call':>18}",
    )
    found = []
    for number in hosts:
        row = Measured(number, one(number, TREE), one(number, number))
        found.append(row)
        cells: list[float] = []
        for kind in KINDS:
            tree, flat = (getattr(side, kind).controller for side in (row.tree, row.flat))
            cells += tree, flat, flat / max(tree, 1e-9)
        rows.row(number, *cells, AIMS.get(number), row.tree.latency, row.tree.rate)
    print(f"aims: batched {AIMS} ms with the tree; at 512 hosts {FLAT:g}x less than flat")
    return found


def predictions(found: Sequence[Measured]) -> None:
    """Print predictions. The paper's budget is the shortest computation that hides its controller, so it is compared
    with the time between two batched gangs."""
    rows = Table("hosts >7", "own >11.2f", "here >11.2f", "own >14.3f", "here >11.3f", "paper >12g", "a message >20",
                 "a step >18")  # fmt: skip
    rows.begin(
        "the simulator's prediction with hosts on machines of their own, from the costs just measured, with the tree",
        f"{'':7}{'a call, ms':>22}{'batched, ms a gang':>25}{'':12}costs of single / batched gangs, us",
    )
    for row in found:
        said = predicted(row, found, TREE, NODES)
        both = [profile_of(row, found, TREE, kind) for kind in KINDS]
        costs = [
            " / ".join(f"{getattr(each, cost) / 1e3:,.0f}" for each in both) for cost in ("send", "step")
        ]
        here = row.tree.latency, said.gang, 1e3 / row.tree.rate
        rows.row(row.hosts, said.latency, *here, BUDGETS.get(row.hosts), *costs)

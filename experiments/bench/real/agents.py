"""Measures an agent's memory and start, and how soon `sw.local()` is ready, against a process that only starts JAX.

`python -m experiments.bench agents`. Memory is the system's count: resident (RSS), and proportional (PSS), which
divides pages among the processes that share them. An agent's start lasts from the start of its process until its island
runs. That of `sw.local()` is measured in a fresh Python, which imports Seaway, starts a host, and computes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from backend.admin import Children

from ..frame import options, processes
from ..frame.deployed import controller_only
from ..frame.table import Table

REPEATS = 3
MANY = 64  # timed hosts of one process
AIM = 5.0  # seconds for sw.local() to be ready
BOUND = 120.0  # seconds for a fresh Python to do what a script does


class Memory(NamedTuple):
    """Megabytes. pss: None if the system does not give it."""

    rss: float
    pss: float | None


class Agent(NamedTuple):
    memory: Memory
    seconds: float


class Local(NamedTuple):
    """Seconds of the import, of `sw.local()`, of the first computation with its compilation, and of a second call."""

    imported: float
    ready: float
    first: float
    second: float


def memory_of(pid: int) -> Memory:
    for name in ("smaps_rollup", "status"):
        try:
            lines = Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue  # not every system has the first
        fields = {key: int(rest.split()[0]) / 1e3 for key, _, rest in (line.partition(":") for line in lines)
                  if key in ("Rss", "Pss", "VmRSS")}  # fmt: skip
        return Memory(fields.get("Rss") or fields["VmRSS"], fields.get("Pss"))
    raise OSError(f"the system does not say what memory process {pid} has")


# --- measured ---------------------------------------------------------------------------------------------------------


def agent(platform: str, hosts: int, count: int) -> Agent:
    """The median memory of the processes that run the hosts, and the seconds until their island runs."""
    with controller_only(hosts) as cluster:
        cluster.status()  # the controller answers
        begun = time.perf_counter()
        cluster.start_agents(platform, count)
        cluster.wait()
        seconds = time.perf_counter() - begun
        found = [memory_of(child.pid) for child in cluster.agents]
        return Agent(sorted(found)[len(found) // 2], seconds)


def controller() -> Agent:
    begun = time.perf_counter()
    with controller_only(1) as cluster:
        cluster.status()
        return Agent(memory_of(cluster.controller.pid), time.perf_counter() - begun)


def bare() -> Agent:
    """The baseline: a process with only JAX and its CPU device."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            begun = time.perf_counter()
            child = processes.start(children, start_bare, env=processes.environment(1))
            processes.heard(child)
            return Agent(memory_of(child.pid), time.perf_counter() - begun)
        finally:
            children.end_all()


def local(repeats: int) -> Local:
    found = [processes.answer(start_local, bound=BOUND) for _ in range(repeats)]
    return Local(*map(median, zip(*found, strict=True)))


# --- what children do -------------------------------------------------------------------------------------------------


def start_bare() -> None:
    import jax

    processes.say(devices=len(jax.devices()))
    time.sleep(BOUND)


def start_local() -> Local:
    """Do what a user's script does."""
    begun = time.perf_counter()
    import numpy as np

    import seaway as sw

    imported = time.perf_counter()
    with sw.local() as _:
        ready = time.perf_counter()
        add = sw.jit(lambda x: x + 1, devices=sw.slice(devices=1))
        np.asarray(add(np.zeros(4, np.float32)))
        first = time.perf_counter()
        np.asarray(add(np.zeros(4, np.float32)))
        second = time.perf_counter()
        return Local(imported - begun, ready - imported, first - ready, second - first)


# --- what is printed --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("agents", __doc__)
    parser.number("--repeats", REPEATS, "measurements for a median")
    parser.number("--many", MANY, "timed hosts in one process")
    chosen = parser.read(arguments)
    base = bare()
    table = Table(
        " <34", "RSS MB >9,.0f", "PSS MB >9,.0f", "start s >9.2f", "RSS, x of bare >17.2f", "start, x >10.2f"
    )
    table.begin()
    for name, (memory, seconds) in (
        ("bare JAX (baseline)", base),
        ("controller", controller()),
        ("agent, a CPU device", agent("cpu", 1, 1)),
        ("agent, a timed device", agent("timed", 1, 1)),
        (f"agent, {chosen.many} timed hosts in it", agent("timed", chosen.many, 1)),
    ):
        pss = "?" if memory.pss is None else memory.pss
        table.row(name, memory.rss, pss, seconds, memory.rss / base.memory.rss, seconds / base.seconds)
    found = local(chosen.repeats)
    print(
        f"sw.local() in a fresh Python, medians of {chosen.repeats}: ready after {found.ready:.2f} s (aim {AIM:g} s)"
    )
    print(f"  import seaway {found.imported:.2f} s before it; the first computation {found.first:.2f} s after it, "
          f"the next {found.second * 1e3:.1f} ms")  # fmt: skip

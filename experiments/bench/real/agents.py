"""Measures an agent's memory and start, and how soon `sw.local()` is ready, against a process that only starts JAX.

`python -m experiments.bench agents`. Memory is the system's count: resident (RSS), and proportional (PSS), which
divides pages among the processes that share them. An agent's start lasts from the start of its process until its island
runs. That of `sw.local()` is measured in a fresh Python, which imports Seaway, starts a host, and computes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from backend.admin import Child, Children

from ..frame import members, options
from ..frame.deployed import Deployed

MODULE = "experiments.bench.real.agents"
REPEATS = 3
MANY = 64  # timed hosts of one process
AIM = 5.0  # seconds for sw.local() to be ready


class Memory(NamedTuple):
    """Megabytes. pss: -1 if the system does not give it."""

    rss: float
    pss: float


class Agent(NamedTuple):
    name: str
    memory: Memory
    seconds: float


class Local(NamedTuple):
    """Seconds of the import, of `sw.local()`, of the first computation with its compilation, and of a second call."""

    imported: float
    ready: float
    first: float
    second: float


def memory_of(pid: int) -> Memory:
    fields = {}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            name, number, *_ = line.split()
            fields[name] = int(number) / 1e3
        return Memory(fields["Rss:"], fields["Pss:"])
    except OSError:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        found = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return Memory(int(found.split()[1]) / 1e3, -1.0)


# --- measured ---------------------------------------------------------------------------------------------------------


def agent(name: str, platform: str, hosts: int, processes: int) -> Agent:
    """A row for agents: the median memory of the processes, and seconds until the island runs."""
    with TemporaryDirectory() as folder:
        cluster = Deployed(Path(folder), hosts)
        try:
            cluster.status()  # the controller answers
            begun = time.perf_counter()
            cluster.start_agents(platform, processes, members.environment(1) if platform == "cpu" else None)
            cluster.wait()
            seconds = time.perf_counter() - begun
            return Agent(name, _median([memory_of(child.pid) for child in cluster.agents]), seconds)
        finally:
            cluster.end()


def controller() -> Agent:
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        cluster = Deployed(Path(folder), 1)
        try:
            cluster.status()
            return Agent("controller", memory_of(cluster.controller.pid), time.perf_counter() - begun)
        finally:
            cluster.end()


def bare() -> Agent:
    """The baseline: a process with only JAX and its CPU device."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            begun = time.perf_counter()
            child = children.start("bare", MODULE, ["--bare"], members.environment(1), stdout=subprocess.PIPE)
            _line(child)
            return Agent("bare JAX (baseline)", memory_of(child.pid), time.perf_counter() - begun)
        finally:
            children.end_all()


def local(repeats: int) -> Local:
    found = []
    for _ in range(repeats):
        with TemporaryDirectory() as folder:
            children = Children(Path(folder))
            try:
                child = children.start("local", MODULE, ["--local"], stdout=subprocess.PIPE)
                found.append(Local(*json.loads(_line(child))))
            finally:
                children.end_all(20.0)
    return Local(*(statistics.median(each) for each in zip(*found, strict=True)))


def _line(child: Child) -> str:
    assert child.process.stdout is not None
    found = child.process.stdout.readline().decode()
    if not found:
        raise RuntimeError(f"{child.name} ended: {child.tail()}")
    return found


def _median(found: Sequence[Memory]) -> Memory:
    return Memory(*(statistics.median(each) for each in zip(*found, strict=True)))


# --- what children do -------------------------------------------------------------------------------------------------


def start_bare() -> None:
    import jax

    print(len(jax.devices()), flush=True)
    sys.stdin.buffer.read()


def start_local() -> None:
    """Do what a user's script does, and print the seconds."""
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
        print(json.dumps([imported - begun, ready - imported, first - ready, second - first]), flush=True)


# --- what is printed --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("agents", __doc__)
    parser.add_argument(
        "--repeats", type=options.least(1), default=REPEATS, help="measurements for a median (%(default)s)"
    )
    parser.add_argument(
        "--many", type=options.least(1), default=MANY, help="timed hosts in one process (%(default)s)"
    )
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--local", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.bare or chosen.local:
        (start_bare if chosen.bare else start_local)()
        return
    base = bare()
    print(f"{'':34}{'RSS MB':>9}{'PSS MB':>9}{'start s':>9}{'RSS':>8}{'start':>8}  x of bare JAX")
    rows = [
        base, controller(), agent("agent, a CPU device", "cpu", 1, 1), agent("agent, a timed device", "timed", 1, 1),
        agent(f"agent, {chosen.many} timed hosts in it", "timed", chosen.many, 1),
    ]  # fmt: skip
    for row in rows:
        pss = f"{row.memory.pss:,.0f}" if row.memory.pss >= 0 else "?"
        print(
            f"{row.name:34}{row.memory.rss:>9,.0f}{pss:>9}{row.seconds:>9.2f}{row.memory.rss / base.memory.rss:>8.2f}"
            f"{row.seconds / base.seconds:>8.2f}",
            flush=True,
        )
    found = local(chosen.repeats)
    print(
        f"sw.local() in a fresh Python, medians of {chosen.repeats}: ready after {found.ready:.2f} s (aim {AIM:g} s)"
    )
    print(
        f"  import seaway {found.imported:.2f} s before it; the first computation {found.first:.2f} s after it, "
        f"the next {found.second * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measures traces: memory and time of recording, and the time to compute each device's utilisation.

`python -m experiments.bench traces`. The load is the paper's largest: 2,048 devices on 512 hosts, 4 programs of 1,000
gangs each, with the time at which each host enqueued each gang. The baselines are simple: a list of tuples, one a
device and gang, and pandas' groupby over the same as columns.
"""

from __future__ import annotations

import resource
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from core.record import Trace as CoreTrace
from seaway.trace import Trace

from ..frame import measuring, processes
from ..frame.table import Table

HOSTS, PER_HOST, PROGRAMS, GANGS = 512, 4, 4, 1_000
REPEATS = 5
LONG = 100_000  # gangs
PATIENCE = 600.0  # seconds
US = 1_000
DURATION = 330 * US
LOOKS: dict[str, Callable[[Trace], object]] = {
    "intervals(sample=16)": lambda trace: trace.intervals(sample=16),
    "plot()": lambda trace: trace.plot(),
}
Ints = npt.NDArray[np.int64]


def arrivals(hosts: int, gangs: int) -> dict[str, list[Ints]]:
    """When each host enqueued each gang, in nanoseconds after its order, for three kinds of control plane."""
    dice = np.random.default_rng(1)
    numbers = np.arange(hosts, dtype=np.int64)
    tree, flat = 10 * US + numbers // 23 * US, 10 * US + 68 * US * numbers
    jitter = dice.integers(0, 8 * US, (gangs, hosts))
    return {
        "no jitter: all gangs alike": [tree] * gangs,
        "8 us of jitter": list(tree + jitter),
        "flat fan-out over 35 ms, 8 us of jitter": list(flat + jitter),
    }


def record(hosts: int, gangs: int, delays: list[Ints]) -> CoreTrace:
    """Record as a driver does: for each gang a run and a gang, then their times as they become known."""
    trace = CoreTrace()
    trace.place(0, 0, ((0, hosts * PER_HOST),), PER_HOST)
    for program in range(PROGRAMS):
        trace.client(program, f"client {program}", 1, 0, 0)
    free = 0
    for seq in range(gangs):
        trace.submitted(seq, seq % PROGRAMS, seq, "step", free)
        trace.gang(seq, seq, "step", 0, 0, ready=free, entered=free)
        enqueued = delays[seq] + free
        trace.hosts(seq, enqueued)
        start = int(enqueued[-1])
        free = start + DURATION
        trace.update(seq, started=start, ended=free)
        trace.ended(seq, free)
    return trace


def record_tuples(hosts: int, gangs: int, delays: list[Ints]) -> list[tuple[int, int, int, int, int]]:
    """The naive form: (device, gang, arrived, started, ended)."""
    found, free = [], 0
    for seq in range(gangs):
        enqueued = (delays[seq] + free).tolist()
        start = enqueued[-1]
        free = start + DURATION
        found += [
            (device, seq, enqueued[device // PER_HOST], start, free) for device in range(hosts * PER_HOST)
        ]
    return found


def timed(call: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """(median CPU seconds, result)."""
    found = [measuring.timed(call) for _ in range(repeats)]
    return median(seconds for seconds, _ in found), found[-1][1]


def measured_bytes(call: Callable[[], object]) -> int:
    """Bytes still allocated after the call, as Python counts them."""
    tracemalloc.start()
    kept = call()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return held


def recording(hosts: int, gangs: int) -> list[str]:
    table = Table("recording, a device interval <44", "bytes >8.3f", "(allocated) >13.3f", "ns >8.2f")
    lines = [table.head()]
    number = hosts * PER_HOST * gangs
    kinds = arrivals(hosts, gangs)
    for name, delays in kinds.items():
        work = partial(record, hosts, gangs, delays)
        seconds, trace = timed(work)
        held = measured_bytes(work)
        lines.append(table.line(f"  {name}", trace.nbytes / number, held / number, 1e9 * seconds / number))
    few, delays = max(1, gangs // 40), kinds["8 us of jitter"]
    naive = partial(record_tuples, hosts, few, delays)
    each = hosts * PER_HOST * few
    found = measured_bytes(naive) / each, 1e9 * timed(naive)[0] / each
    lines.append(table.line("  baseline: a list of tuples", None, *found))
    with TemporaryDirectory() as folder:
        saved = Trace(record(hosts, gangs, delays)).save(Path(folder) / "trace")
        size = sum(file.stat().st_size for file in saved.iterdir())
    lines.append(table.line("  the second of these as Parquet, on disk", size / number))
    return lines


def expanded(trace: Trace) -> pd.DataFrame:
    """All device intervals, for the baseline."""
    columns = [block[["device", "started_us", "ended_us"]] for block in trace.interval_blocks()]
    return pd.concat(columns, ignore_index=True)


def looking(hosts: int, gangs: int) -> list[str]:
    core = record(hosts, gangs, arrivals(hosts, gangs)["8 us of jitter"])
    number = hosts * PER_HOST * gangs

    def fresh(by: Any, bins: int) -> pd.DataFrame:
        return Trace(core).utilization(by, bins)  # a new one remembers nothing

    rows = Table(f"looking, of {number:,} device intervals <44", "ms >8.1f", "rows >13,")
    lines = [rows.head()]
    for name, by, bins in (
        ("busy and skew of each device", "device", 1),
        ("the same, in 100 bins", "device", 100),
        ("of each client, in 1,000 bins", "client", 1_000),
    ):
        seconds, frame = timed(partial(fresh, by, bins))
        lines.append(rows.line(f"  {name}", 1e3 * seconds, len(frame)))
    seconds, table = timed(lambda: expanded(Trace(core)), 1)
    lines.append(rows.line("  baseline: expand to intervals", 1e3 * seconds, len(table)))
    table["busy_us"] = table["ended_us"] - table["started_us"]
    seconds, found = timed(table.groupby("device")["busy_us"].sum, 3)
    lines.append(rows.line("  baseline: then groupby, busy of each device", 1e3 * seconds, len(found)))
    span = (table["ended_us"].max() - table["started_us"].min()) / 1
    ours = Trace(core).utilization("device")["busy_fraction"].to_numpy()
    apart = float(np.abs(found.to_numpy() / span - ours).max())
    lines.append(f"  largest difference of a device's busy fraction from the baseline's: {apart:.1e}")
    return lines


def sampling(gangs: int) -> list[str]:
    """What one often asks of a long trace, each in a process of its own."""
    rows = Table(f"looking, of {gangs:,} gangs on {HOSTS} hosts <44", "ms >8.1f", "MB >8.0f")
    found = {name: look(name, gangs) for name in LOOKS}
    return [
        rows.head(),
        *(rows.line(f"  {name}", 1e3 * each["s"], each["MB"]) for name, each in found.items()),
    ]


def look(name: str, gangs: int) -> dict[str, float]:
    """CPU seconds, and by how many megabytes the process grew at most."""
    found: dict[str, float] = processes.answer(looked, name, gangs, bound=PATIENCE)
    return found


def looked(name: str, gangs: int) -> dict[str, float]:
    trace = Trace(record(HOSTS, gangs, arrivals(HOSTS, 1)["no jitter: all gangs alike"] * gangs))
    before = resident()
    seconds, _ = measuring.timed(lambda: LOOKS[name](trace))
    return {"s": seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before}


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def report(hosts: int = HOSTS, gangs: int = PROGRAMS * GANGS) -> str:
    what = f"{hosts * PER_HOST:,} devices on {hosts} hosts, {gangs:,} gangs with each host's arrival"
    head = f"{what}; CPU time, median of {REPEATS}"
    return "\n".join([head, *recording(hosts, gangs), *looking(hosts, gangs)])


def main() -> None:
    print(report(), *sampling(LONG), sep="\n")

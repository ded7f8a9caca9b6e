"""Measures moving an array from host to host and back: latency and bandwidth, against a raw socket and a memory copy.

`python -m experiments.bench transfers [--full]`. Two agents have a CPU device each. One program moves an array to and
fro between their slices, each hop after the one before. The call's time is divided by its hops. The raw socket is also
between two processes of this machine, with chunks as large as Seaway's (1 MiB) and one answer an array. The copy is
numpy's, in one process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.admin import cpu_of
from core.transfer import CHUNK

from ..frame import options
from ..frame.deployed import Deployed, deployed
from ..frame.table import Table
from . import stream

FULL = True
KB, MB = 1_000, 1_000_000
SIZES = (KB, 64 * KB, MB, 16 * MB, 64 * MB)
ALL_SIZES = (KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB)
HOPS = 8
TIMES = 5


class Row(NamedTuple):
    """Median seconds of a hop. `cpu`: CPU seconds of both agents."""

    size: int
    seaway: float
    cpu: float
    raw: float
    copy: float


def to_and_fro(a: Any, b: Any, hops: int) -> Callable[[Any], Any]:
    import seaway as sw

    def program(x: Any) -> Any:
        for _ in range(hops // 2):
            x = sw.put(sw.put(x, devices=b), devices=a)
        return x

    made: Callable[[Any], Any] = sw.program(program)
    return made


def copied(size: int, times: int) -> list[float]:
    source, target = np.zeros(size, np.uint8), np.empty(size, np.uint8)
    found = []
    for turn in range(times + 1):
        begun = time.perf_counter()
        np.copyto(target, source)
        if turn:
            found.append(time.perf_counter() - begun)
    return found


def rows(sizes: Sequence[int], hops: int = HOPS, times: int = TIMES) -> Iterator[Row]:
    import seaway as sw

    raw = stream.hops(sizes, CHUNK, hops * times)
    with deployed(2, platform="cpu") as cluster, sw.connect(cluster.address):
        a, b = (sw.slice(devices=1, exclusive=True) for _ in range(2))
        work = to_and_fro(a, b, hops)
        for size in sizes:
            content = np.arange(size, dtype=np.int64).astype(np.uint8)
            x = sw.put(content, devices=a)
            y = work(x).block_until_ready()
            found, spent = [], []
            for _ in range(times):
                begun, before = time.perf_counter(), cpu(cluster)
                y = work(x).block_until_ready()
                found.append((time.perf_counter() - begun) / hops)
                spent.append((cpu(cluster) - before) / hops)
            if not np.array_equal(np.asarray(y), content):
                raise RuntimeError(f"{size} bytes came back changed")
            yield Row(size, *map(statistics.median, (found, spent, raw[size], copied(size, times))))


def cpu(cluster: Deployed) -> float:
    return sum(cpu_of(agent.pid) for agent in cluster.agents) / 1e9


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("transfers", __doc__, full="nine sizes, not five")
    parser.numbers("--bytes", SIZES, ALL_SIZES, "sizes of arrays")
    parser.number("--hops", HOPS, "hops of a call, even", at_least=2)
    parser.number("--times", TIMES, "calls for a median")
    chosen = parser.read(arguments)
    if chosen.hops % 2:
        parser.error(f"--hops {chosen.hops}: an array that comes back has made an even number of hops")
    what = f"medians of {chosen.times} calls of {chosen.hops} hops; chunks of {CHUNK:,} bytes"
    columns = [
        f"{name} {each}"
        for name in ("Seaway:", "raw socket:", "copy:")
        for each in ("ms >13.3f", "MB/s >15,.1f")
    ]
    columns.insert(2, "agents' CPU ms >15.3f")
    table = Table("bytes >12,", *columns, "of raw MB/s >13.0%").begin(f"a hop between two processes; {what}")
    for row in rows(chosen.bytes, chosen.hops, chosen.times):
        hops = (row.seaway, row.raw, row.copy)
        cells = [cell for each in hops for cell in (each * 1e3, row.size / each / MB)]
        cells.insert(2, row.cpu * 1e3)
        table.row(row.size, *cells, row.raw / row.seaway)

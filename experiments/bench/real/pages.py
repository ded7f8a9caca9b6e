"""Compares agents that keep freed memory with agents that give it back, for computations and contents between hosts.

`python -m experiments.bench pages [--turns N]`. Two hosts of one CPU device each, in two processes, run alternately
with the agents' default (`backend.agent.malloc`) and with glibc's. It prints the time and the hosts' CPU time of a
gang, for matrix products and sums of arrays, eight in a call with four calls under way; the time of a hop, for arrays
that move from host to host and back; and the peak memory of a host's process.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from seaway.tools.calibrating import Watch, addition, chained, hops, product, streamed

from ..frame import options
from ..frame.measuring import in_turns
from ..frame.table import Table

HOSTS = 2
TURNS = 5
CHAIN, AHEAD, TIMES = 8, 4, 4
MOVES, MOVED = 3, (1_000_000, 16_000_000)
GIVEN = "MALLOC_ARENA_TEST", "8"  # glibc's default changes nothing, but agents then leave malloc to the user
PRODUCTS, SUMS = (128, 256, 512), (1 << 18, 1 << 20)  # rows; float32


class Took(NamedTuple):
    """Microseconds of a gang or hop, by the clock and of its hosts' CPU."""

    wall: float
    cpu: float


class Turn(NamedTuple):
    """megabytes: the peak memory of a host's process."""

    took: dict[str, Took]
    megabytes: float


def given_back() -> AbstractContextManager[object]:
    """Agents started in this block leave memory to glibc."""
    return mock.patch.dict(os.environ, [GIVEN])


def works() -> Iterator[tuple[str, Callable[[Any], Any], tuple[int, ...]]]:
    for rows in PRODUCTS:
        yield f"product, {rows} rows", product, (rows, rows)
    for size in SUMS:
        yield f"sum of arrays, {4 * size >> 20} MiB", addition, (size,)


def turn() -> Turn:
    import seaway as sw

    with sw.local(hosts=HOSTS, platform="cpu") as session:
        found = dict(computed(session))
        most = peak(session)
    with sw.local(hosts=HOSTS, platform="cpu") as session:
        moved = hops(session, 1, MOVED, MOVES)
        most = max(most, peak(session))
    for nbytes in MOVED:
        same = [hop for hop in moved if hop.nbytes == nbytes]
        wall, cpu = (statistics.median(getattr(hop, what) for hop in same) / 1e3 for what in ("wall", "cpu"))
        found[f"hop of {nbytes // 1_000_000} MB"] = Took(wall, cpu)
    return Turn(found, most)


def computed(session: Any) -> Iterator[tuple[str, Took]]:
    import seaway as sw

    home, watch = sw.slice(devices=HOSTS), Watch(session)
    for name, work, shape in works():
        x = sw.put(np.ones((HOSTS, *shape), np.float32), devices=home)
        call = chained([sw.pmap(work, "device", devices=home)] * CHAIN)
        streamed(call, x, 2, many=AHEAD)
        watch.begin()
        streamed(call, x, TIMES, many=AHEAD)
        sample = watch.end(name)
        gangs = CHAIN * AHEAD * TIMES
        hosts = sum(sample.cpu.values()) - sample.cpu["caller"] - sample.cpu["user"]
        yield name, Took(sample.wall / gangs / 1e3, hosts / gangs / 1e3)


def peak(session: Any) -> float:
    """The highest peak memory of the session's agents, in megabytes."""
    found = []
    for child in session.driver.agents:
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
        found += [float(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(found)


def turn_given_back() -> Turn:
    with given_back():
        return turn()


def measured(turns: int) -> tuple[list[Turn], list[Turn]]:
    """(turns with memory given back, turns with memory kept)."""
    found = in_turns(turns, {"back": turn_given_back, "kept": turn})
    return found["back"], found["kept"]


def table(back: Sequence[Turn], kept: Sequence[Turn]) -> str:
    rows = Table("medians, us <26", "given back >11,.0f", "kept >9,.0f", "ratio >7.2f", "CPU, given back >18,.0f",
                 "kept >9,.0f", "ratio >7.2f")  # fmt: skip
    lines = [rows.head()]
    for name in back[0].took:
        walls, cpus = (
            [statistics.median(getattr(each.took[name], what) for each in side) for side in (back, kept)]
            for what in ("wall", "cpu")
        )
        lines.append(rows.line(name, *walls, walls[1] / walls[0], *cpus, cpus[1] / cpus[0]))
    most = [max(each.megabytes for each in side) for side in (back, kept)]
    lines.append(f"the most memory of a host's process: {most[0]:,.0f} MB given back, {most[1]:,.0f} MB kept")
    return "\n".join(lines)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("pages", __doc__)
    parser.number("--turns", TURNS, "turns of each kind")
    print(table(*measured(parser.read(arguments).turns)))

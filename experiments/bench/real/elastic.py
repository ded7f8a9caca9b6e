"""Measures moving, suspending and resuming a client, against only copying its arrays.

Two agents have a CPU device each. A client has arrays on one of them. It moves to the other: the baseline is `sw.put`
of the same arrays on a slice of the other device. It is suspended and resumed: the baseline is numpy's copy of as many
bytes in one thread, or, where host memory has no room, numpy's write to a file and read of it. `first call` is from the
end of that until the client's next call has ended, less what the same call took before. What this machine's memory does
not hold four times is not moved. Then the same move in the simulator: 512 of 2048 TPUs, against the same `sw.put`
there; and how long a client of a higher priority waits for those of a lower one.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ..frame import options
from ..frame.deployed import deployed
from ..frame.options import Table

MB = 1_000_000
SIZES = (64 * MB, 1_000 * MB)
ARRAYS = 8
TIMES = 3
DEVICES, EACH = 512, MB  # of the simulated client, and bytes on each of them


class Row(NamedTuple):
    """Median seconds."""

    what: str
    nbytes: int
    took: float
    copy: float
    first: float


def timed(act: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    act()
    return clock() - begun


def rows(sizes: Sequence[int], times: int = TIMES) -> Iterator[Row]:
    import seaway as sw

    with deployed(2) as cluster, sw.connect(cluster.address) as session:
        for size in sizes:
            moves = 4 * size <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # both ends are here
            yield from _of(session, size, times, ("move", "suspend", "resume")[not moves :])


def rows_of_disk(sizes: Sequence[int], times: int = TIMES) -> Iterator[Row]:
    """Hosts have no memory for what leaves the devices."""
    import seaway as sw

    with TemporaryDirectory(dir="/var/tmp") as folder:
        file = Path(folder) / "cluster.toml"
        island = ('name = "i"', "hosts = 2", "devices_per_host = 1", "host_memory = 0", "host_disk = 1_000_000_000_000")
        file.write_text("\n".join(("[[island]]", *island)), encoding="utf-8")
        on_disk = deployed(2, controller=["--cluster", str(file)], options=["--spill", folder])
        with on_disk as cluster, sw.connect(cluster.address) as session:
            for size in sizes:
                yield from _of(session, size, times, ("suspend", "resume"), Path(folder) / "copy")


def _of(session: Any, size: int, times: int, ways: Sequence[str], file: Path | None = None) -> Iterator[Row]:
    """One size. Each way of moving once before it is timed: then code is compiled for both devices. `file`: for the
    copies that are compared; None: they are in memory."""
    import seaway as sw

    a, b = sw.slice(devices=1, exclusive=True), sw.slice(devices=1, exclusive=True)
    content = np.arange(size // ARRAYS, dtype=np.int64).astype(np.uint8)
    call = sw.jit(lambda x: x + np.uint8(1), devices=a)
    small, mine = sw.put(np.zeros(8, np.uint8), devices=a), [sw.put(content, devices=a) for _ in range(ARRAYS)]
    sw.block_until_ready([*mine, call(small)])

    def step() -> None:
        call(small).block_until_ready()

    copies: dict[str, Callable[[], object]] = {
        "move": lambda: sw.block_until_ready(sw.put(mine, devices=b)),
        "suspend": lambda: list(map(_copied, [content] * ARRAYS, [file] * ARRAYS)),
        "resume": lambda: [content.copy() if file is None else np.fromfile(file, np.uint8) for _ in mine],
    }
    copy = {what: [timed(copies[what]) for _ in range(times)] for what in ways}
    session.release(b)
    acts = {"move": session.move, "suspend": session.suspend, "resume": session.resume}
    took: dict[str, list[float]] = {what: [] for what in ways}
    first: dict[str, list[float]] = {what: [] for what in ways}
    for turn in range(times + 1):
        usual = timed(step)
        for what in ways:
            seconds, after = timed(partial(acts[what], a)), timed(step) if what != "suspend" else usual
            if turn:
                took[what].append(seconds)
                first[what].append(max(0.0, after - usual))
    if not all(np.array_equal(np.asarray(each), content) for each in mine):
        raise RuntimeError(f"{size} bytes came back changed")
    session.release(a)
    to = "" if file is None else " (disk)"
    for what, seconds_of in took.items():
        yield Row(what + to, size, *map(statistics.median, (seconds_of, copy[what], first[what])))


def _copied(content: np.ndarray[Any, Any], file: Path | None) -> None:
    if file is None:
        content.copy()
    else:
        content.tofile(file)


def simulated(devices: int = DEVICES, each: int = EACH) -> Row:
    from jax.sharding import PartitionSpec

    import seaway as sw

    a, b = sw.slice(devices=devices, name="a"), sw.slice(devices=devices, name="b")
    with sw.simulate("A", profile="seaway") as s:
        now = lambda: float(s.now())  # noqa: E731
        split = PartitionSpec("x")  # type: ignore[no-untyped-call]
        mine = sw.put(np.zeros((devices, each // 4), np.float32), devices=a, sharding=split)
        sw.block_until_ready(mine)
        copy = timed(lambda: sw.block_until_ready(sw.put(mine, devices=b)), now)
        took = timed(lambda: s.move(a), now)
        return Row("move", devices * each, took, copy, 0.0)


def preempted(devices: int = DEVICES, each: int = EACH) -> Row:
    """Of 2048, others have all but `devices`, which a client of a lower priority has. How long one of a higher priority
    waits for these, against a copy of what is on them to host memory: as long as its bytes need."""
    from jax.sharding import PartitionSpec

    import seaway as sw
    from sim.hardware import load

    a, b, rest = (
        sw.slice(devices=count, name=name, exclusive=True)
        for name, count in (("a", devices), ("b", devices), ("rest", load("A").cluster.devices - devices))
    )
    with sw.simulate("A", profile="seaway", policy="priority") as s:
        now = lambda: float(s.now())  # noqa: E731
        split = PartitionSpec("x")  # type: ignore[no-untyped-call]
        zeros = np.zeros((devices, each // 4), np.float32)
        with s.client("high", priority=1):
            call = sw.synthetic("step", devices=b, duration="1ms")
            call(np.float32(0)).block_until_ready()
            usual = timed(lambda: call(np.float32(0)).block_until_ready(), now)
            s.release(b)
            sw.synthetic("other", devices=rest, duration="1ms")(np.float32(0)).block_until_ready()
        with s.client("low"):
            mine = sw.put(zeros, devices=a, sharding=split)
            sw.block_until_ready(mine)
            with s.client("high again", priority=1):
                took = timed(lambda: call(np.float32(0)).block_until_ready(), now) - usual
                first = timed(lambda: call(np.float32(0)).block_until_ready(), now) - usual
        return Row("preempt", devices * each, took, each / load("A").chips[0].pcie_bandwidth, first)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("elastic", __doc__)
    parser.numbers("--bytes", SIZES, "bytes of the client's arrays")
    parser.number("--times", TIMES, "times for a median")
    chosen = parser.parse_args(arguments)
    columns = ("of >16", "MB >8,.0f", "ms >10,.1f", "copy ms >10,.1f", "ratio >7.2f", "first call ms >14.1f")
    table = Table(*columns).begin(f"two CPU hosts; medians of {chosen.times}; {ARRAYS} arrays")
    for row in chain(rows(chosen.bytes, chosen.times), rows_of_disk(chosen.bytes, chosen.times)):
        _show(table, row)
    table = Table(*columns).begin(f"simulated: {DEVICES} of 2048 TPUs, {EACH / MB:g} MB on each")
    for row in (simulated(), preempted()):
        _show(table, row)


def _show(table: Table, row: Row) -> None:
    milliseconds = [each * 1e3 for each in (row.took, row.copy)]
    table.row(row.what, row.nbytes / MB, *milliseconds, row.took / row.copy, row.first * 1e3)

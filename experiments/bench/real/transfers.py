"""Measures moving arrays from host to host: latency and bandwidth, against a raw socket.

`python -m experiments.bench transfers`. Two agents have a CPU device each. One program moves an array to and
fro between their slices, each hop after the one before. The call's time is divided by its hops. The raw socket is also
between two processes of this machine, with chunks as large as Seaway's (1 MiB) and one answer an array.
"""

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from backend.admin import Children
from core.transfer import CHUNK
from seaway.tools.calibrating import to_and_fro

from ..frame import options, processes
from ..frame.deployed import deployed
from ..frame.options import Table

KB, MB = 1_000, 1_000_000
SIZES = (KB, 64 * KB, MB, 16 * MB, 64 * MB)
HOPS = 32
TIMES = 5
DONE = b"k"


class Row(NamedTuple):
    """Median seconds of a hop."""

    size: int
    seaway: float
    raw: float


# --- the baseline: bytes over one TCP connection between two processes, with nothing around them ---------------------
# Both ends block. The receiver receives into one array and answers each with one byte, and then the sender sends the
# next. So this is the least time of a hop on this machine.


def receiver(sizes: list[int], times: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        processes.say(port=server.getsockname()[1])
        caller, _ = server.accept()
        with caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in sizes:
                room = memoryview(bytearray(size))
                for _ in range(times + 1):
                    came = 0
                    while came < size:
                        came += caller.recv_into(room[came:])
                    caller.sendall(DONE)


def sender(port: int, sizes: list[int], chunk: int, times: int) -> list[list[float]]:
    found: list[list[float]] = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes:
            content = memoryview(b"x" * size)
            found.append([])
            for turn in range(times + 1):
                begun = time.perf_counter()
                for at in range(0, size, chunk):
                    sock.sendall(content[at : at + chunk])
                assert sock.recv(1) == DONE
                if turn:
                    found[-1].append(time.perf_counter() - begun)
    return found


def raw(sizes: Sequence[int], chunk: int, times: int) -> dict[int, list[float]]:
    """Seconds of each hop, by size in bytes, without the first of each size."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            port = processes.heard(processes.start(children, receiver, list(sizes), times))["port"]
            sent = processes.start(children, sender, port, list(sizes), chunk, times)
            return dict(zip(sizes, processes.heard(sent), strict=True))
        finally:
            children.end_all()


# --- both ------------------------------------------------------------------------------------------------------------


def rows(sizes: Sequence[int], hops: int = HOPS, times: int = TIMES) -> Iterator[Row]:
    import seaway as sw

    least = raw(sizes, CHUNK, hops * times)
    with deployed(2) as cluster, sw.connect(cluster.address):
        a, b = (sw.slice(devices=1, exclusive=True) for _ in range(2))
        work = to_and_fro(a, b, hops)
        for size in sizes:
            content = np.arange(size, dtype=np.int64).astype(np.uint8)
            x = sw.put(content, devices=a)
            y = work(x).block_until_ready()
            found = []
            for _ in range(times):
                begun = time.perf_counter()
                y = work(x).block_until_ready()
                found.append((time.perf_counter() - begun) / hops)
            if not np.array_equal(np.asarray(y), content):
                raise RuntimeError(f"{size} bytes came back changed")
            yield Row(size, statistics.median(found), statistics.median(least[size]))


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("transfers", __doc__)
    parser.numbers("--bytes", SIZES, "sizes of arrays")
    parser.number("--hops", HOPS, "hops of a call, even", at_least=2)
    parser.number("--times", TIMES, "calls for a median")
    chosen = parser.parse_args(arguments)
    if chosen.hops % 2:
        parser.error(f"--hops {chosen.hops}: an array that comes back has made an even number of hops")
    what = f"medians of {chosen.times} calls of {chosen.hops} hops; chunks of {CHUNK:,} bytes"
    columns = [f"{name} {each}" for name in ("Seaway:", "raw socket:") for each in ("ms >13.3f", "MB/s >15,.1f")]
    table = Table("bytes >12,", *columns, "of raw MB/s >13.0%").begin(f"a hop between two processes; {what}")
    for row in rows(chosen.bytes, chosen.hops, chosen.times):
        cells = [cell for each in (row.seaway, row.raw) for cell in (each * 1e3, row.size / each / MB)]
        table.row(row.size, *cells, row.raw / row.seaway)

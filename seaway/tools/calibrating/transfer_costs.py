"""Measures transfers of contents between two hosts: CPU time by byte at each end.

An array of each size moves to and fro between two hosts, hop after hop, in one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.hardware import load
from sim.shared_cores import SharedMachines

from .fitting import FittedCost, FittedLine, line, middle
from .watching import Watch

KB, MB = 1_000, 1_000_000
SIZES = (KB, 64 * KB, MB, 4 * MB, 16 * MB, 64 * MB)
QUICK = (KB, 256 * KB, 2 * MB, 8 * MB)
LARGE = 1 * MB  # bytes from which a hop is many chunks in a row
HOPS = 4
WARM = 40  # calls with small arrays that are not counted: code that runs for the first time is far slower
OFTEN = 20  # calls with small arrays measured together: after a pause the first ones are slower
AGAIN = 4  # simulated calls
MOST = 256 * MB  # bytes that a call moves at most


class Hop(NamedTuple):
    """A hop's nanoseconds by the clock, and of all hosts' CPU."""

    nbytes: int
    wall: float
    cpu: float


class TransferCosts(NamedTuple):
    """byte: CPU nanoseconds of one end, by bytes. small: clock nanoseconds of a hop of the smallest size."""

    byte: FittedLine
    small: FittedCost


def hops(session: Any, devices: int, sizes: Sequence[int], repeats: int) -> list[Hop]:
    """Move arrays between two hosts, on all devices of each. The hosts are reserved meanwhile, so nothing else may have
    run in the session."""
    import seaway as sw

    homes = [sw.slice(devices=devices, exclusive=True) for _ in range(2)]
    watch, found = Watch(session), []
    for size in sizes:
        many = HOPS if size * HOPS <= MOST else 2
        rows = max(1, size // devices)
        x = sw.put(np.zeros((devices, rows), np.uint8), devices=homes[0])
        work = to_and_fro(homes[0], homes[1], many)
        warm, calls = (WARM, OFTEN) if size < LARGE else (1, 1)
        for _ in range(warm):
            work(x).block_until_ready()
        for _ in range(repeats):
            watch.begin()
            for _ in range(calls):
                work(x).block_until_ready()
            sample = watch.end(f"{size} bytes", calls=calls)
            made = many * calls
            hosts_cpu = sum(sample.cpu.values()) - sample.cpu["caller"] - sample.cpu["user"]
            found.append(Hop(rows * devices, sample.wall / made, hosts_cpu / made))
        del x, work
    for home in homes:
        session.release(home)
    return found


def to_and_fro(one: Any, other: Any, many: int) -> Any:
    import seaway as sw

    def program(x: Any) -> Any:
        for _ in range(many // 2):
            x = sw.put(sw.put(x, devices=other), devices=one)
        return x

    return sw.program(program)


def end_of(found: Sequence[Hop], table: dict[str, Any], devices: int) -> FittedCost:
    """CPU nanoseconds of one end of a transfer, beyond what the simulator charges for messages, orders, bytes and
    buffers of a hop: the rest of the smallest hops' CPU. table: a cluster's."""
    charged = simulated(table, devices)
    smallest = min(hop.nbytes for hop in found)
    return middle([max(0.0, hop.cpu - charged) / 2 for hop in found if hop.nbytes == smallest])


def simulated(table: dict[str, Any], devices: int) -> float:
    """Simulated nanoseconds of the hosts' CPU for a smallest hop, with no cost of ends and no stalls."""
    import seaway as sw

    profile = load(table).profile
    assert profile is not None
    bare = profile.changed(transfer_end=0, stall=0, stall_every=0)
    with sw.simulate(table, profile=bare, progress=False) as session:
        homes = [sw.slice(devices=devices, exclusive=True) for _ in range(2)]
        x = sw.put(np.zeros((devices, max(1, SIZES[0] // devices)), np.uint8), devices=homes[0])
        work = to_and_fro(homes[0], homes[1], HOPS)
        work(x).block_until_ready()
        machines: SharedMachines = session.driver.simulation.machines  # type: ignore[attr-defined]
        before = _of_hosts(machines.spent())
        for _ in range(AGAIN):
            work(x).block_until_ready()
        return (_of_hosts(machines.spent()) - before) / (AGAIN * HOPS)


def _of_hosts(spent: Mapping[tuple[int, str], int]) -> int:
    return sum(some for (name, _), some in spent.items() if name >= 0)


def transfers_of(found: Sequence[Hop]) -> TransferCosts:
    large = [hop for hop in found if hop.nbytes >= LARGE]
    smallest = min(hop.nbytes for hop in found)
    return TransferCosts(
        line([(hop.nbytes, hop.cpu / 2) for hop in large]),
        middle([hop.wall for hop in found if hop.nbytes == smallest]),
    )

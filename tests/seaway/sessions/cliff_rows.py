"""The rows of cliffs: programs, the sizes at which they are counted, and what they may cost at most.

A row that misses its bound is a cliff, and stays one until the simulator is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from . import cliff_programs as programs

WARM, GANGS = 20, 100
FLAT, LINEAR = 0, 1


class Row(NamedTuple):
    """sizes: what is varied, hosts if nothing else. law: how the cost of a gang may grow with it. bound: how many times
    the calls of the plain case it may make, or of `exact`. warm, gangs: how many gangs are made before those that are
    counted, and how many are counted, at a size. hosts: of the cluster, at a size, where other rows have `most`."""

    program: programs.Program
    sizes: tuple[int, int] = (16, 64)
    law: int = LINEAR
    bound: float = 2.0
    against: str = "plain"
    gangs: Callable[[int], int] = lambda size: GANGS
    warm: Callable[[int], int] = lambda size: WARM
    hosts: Callable[[int, int], int] = lambda size, most: size

    @property
    def varies_hosts(self) -> bool:
        return self.sizes == (16, 64) and self.hosts is not most_hosts


def most_hosts(size: int, most: int) -> int:
    return most


def few(size: int) -> int:
    return 20


def one(size: int) -> int:
    return 1


def none(size: int) -> int:
    return 0


BY_SIZE: dict[str, Any] = {"hosts": most_hosts, "law": FLAT}
PLAIN = Row(programs.plain, hosts=most_hosts)
READ, READ_LATER = 1.95, 2.0
ROWS = {
    "calls-ahead": Row(programs.calls_ahead, (1, 16), warm=lambda ahead: ahead + WARM, **BY_SIZE),
    "clients": Row(programs.clients, (1, 8), warm=lambda number: 4 * number, **BY_SIZE),
    "jitter": Row(programs.jitter),
    "stragglers": Row(programs.stragglers),
    "read": Row(programs.reads, bound=READ),
    "read-replicated": Row(partial(programs.reads, like="replicated"), bound=READ),
    "read-sharded": Row(partial(programs.reads, like="sharded"), bound=READ),
    "sharded-first": Row(programs.sharded_first),
    "array-a-call": Row(programs.array_a_call, bound=3),
    "disjoint-slices": Row(
        programs.disjoint_slices, (16, 64), bound=3,
        gangs=lambda number: max(GANGS, number), warm=lambda number: number, **BY_SIZE,
    ),
    "overlapping-slices": Row(
        programs.overlapping_slices, (8, 32), bound=3,
        gangs=lambda number: max(GANGS, number), warm=lambda number: 2 * number, **BY_SIZE,
    ),
    "small-slices": Row(
        programs.small_slices, (4, 16), bound=3,
        gangs=lambda number: max(GANGS, 14 * number), warm=lambda number: 14 * number, **BY_SIZE,
    ),
    "arrays": Row(programs.arrays, (1, 64), hosts=most_hosts, gangs=few),
    "model": Row(programs.model, (4, 16), hosts=most_hosts, gangs=few, warm=lambda size: 5),
    "sequential": Row(programs.sequential, gangs=few),
    "transfers": Row(programs.transfers, (4, 16), bound=1, against="exact", gangs=few, **BY_SIZE),
    "routes": Row(programs.routes, (4, 16), bound=1, against="exact", gangs=few, warm=lambda size: 6),
    "pipeline": Row(
        programs.pipeline, (1, 2), FLAT, 1, "exact",
        gangs=lambda size: 256, warm=none, hosts=lambda hosts, most: programs.STAGES * hosts,
    ),
    "exchange": Row(
        programs.exchange, (2, 8), bound=1.3, against="exact", gangs=lambda number: 4, warm=none, hosts=most_hosts
    ),
    "fault-later": Row(programs.fault_later),
    "fault-later-read": Row(programs.fault_later_read, bound=READ_LATER),
    "fault-later-sharded": Row(partial(programs.fault_later_read, like="sharded"), bound=READ_LATER),
    "fault-later-array": Row(programs.fault_later_array, bound=3),
    "after-fault": Row(programs.after_fault),
    "first-run": Row(programs.first_run, (25, 100), gangs=one, warm=none, **BY_SIZE),
}  # fmt: skip

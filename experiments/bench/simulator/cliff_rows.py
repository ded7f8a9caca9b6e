"""The rows of `bench cliffs`: programs, the sizes at which they are measured, and what they may cost at most.

The bounds are aims. A row that misses its bound is a cliff, and stays one until the simulator is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from . import cliff_programs as programs

WARM, GANGS = 20, 100
STEP_US = 2_000  # a step of a model, whatever the plain case costs
FLAT, LINEAR = 0, 1


class Row(NamedTuple):
    """what: with # for the size. sizes, quick: what is varied. law: how the cost of a gang may grow with it. warm,
    gangs: how many gangs are made before those that are measured, and how many are measured, at a size. hosts: of the
    cluster, at a size, where other rows have `most`."""

    what: str
    program: programs.Program
    sizes: tuple[int, ...] = (64, 512)
    quick: tuple[int, ...] = (16, 64)
    law: int = LINEAR
    bound: float = 2.0
    against: str = "plain"
    gangs: Callable[[int], int] = lambda size: GANGS
    warm: Callable[[int], int] = lambda size: WARM
    hosts: Callable[[int, int], int] = lambda size, most: size
    bound_us: float | None = None


def most_hosts(size: int, most: int) -> int:
    return most


def few(size: int) -> int:
    return 20


def one(size: int) -> int:
    return 1


def none(size: int) -> int:
    return 0


BY_SIZE: dict[str, Any] = {"hosts": most_hosts, "law": FLAT}
PLAIN = Row("plain: # hosts", programs.plain, hosts=most_hosts)
ROWS = {
    "calls-ahead": Row(
        "# calls ahead", programs.calls_ahead, (1, 10, 1_000), (1, 100), warm=lambda ahead: ahead + WARM, **BY_SIZE
    ),
    "clients": Row(
        "# clients", programs.clients, (1, 8, 64), (1, 16), warm=lambda number: 4 * number, **BY_SIZE
    ),
    "jitter": Row("8 us of jitter in messages, 5 % in gangs: # hosts", programs.jitter),
    "stragglers": Row("1 % of # hosts are stragglers", programs.stragglers),
    "read": Row("each result is read: # hosts", programs.reads),
    "read-replicated": Row(
        "each result is read, 1,025 numbers a device: # hosts", partial(programs.reads, like="replicated")
    ),
    "read-sharded": Row(
        "each result is read, split over devices: # hosts", partial(programs.reads, like="sharded")
    ),
    "sharded-first": Row(
        "the first argument is a split array, 8 KiB: # hosts", programs.sharded_first
    ),
    "array-a-call": Row(
        "a split array of 8 KiB at each call: # hosts", programs.array_a_call, bound=3
    ),
    "disjoint-slices": Row(
        "# disjoint slices", programs.disjoint_slices, (64, 256, 512), (4, 16, 64), bound=3,
        gangs=lambda number: max(GANGS, number), warm=lambda number: number, **BY_SIZE,
    ),
    "overlapping-slices": Row(
        "# overlapping slices", programs.overlapping_slices, (4, 16, 64), (4, 16), bound=3,
        gangs=lambda number: max(GANGS, number), warm=lambda number: 2 * number, **BY_SIZE,
    ),
    "small-slices": Row(
        "# clients with slices of 1 to 64 devices", programs.small_slices, (2, 8, 32), (2, 8), bound=3,
        gangs=lambda number: max(GANGS, 14 * number), warm=lambda number: 14 * number, **BY_SIZE,
    ),
    "arrays": Row(
        "a call takes and returns # arrays", programs.arrays, (1, 10, 100, 1_000), (1, 10, 100), hosts=most_hosts,
        gangs=few,
    ),
    "model": Row(
        "a step of a model of # split parameters", programs.model, (10, 1_000), (10, 100), hosts=most_hosts,
        gangs=few, warm=lambda size: 5, bound_us=STEP_US,
    ),
    "sequential": Row("sequential dispatch: # hosts", programs.sequential, gangs=few),
    "transfers": Row(
        "transfers between two slices of # hosts", programs.transfers, (2, 8, 32, 128), (2, 8), bound=1,
        against="exact", gangs=few, **BY_SIZE,
    ),
    "pipeline": Row(
        "16 stages of # hosts, 8 micro-batches", programs.pipeline, (4, 32), (1, 4), FLAT, 1, "exact",
        gangs=lambda size: 256, warm=none, hosts=lambda hosts, most: programs.STAGES * hosts,
    ),
    "fault-later": Row("a crash is announced for an hour later: # hosts", programs.fault_later),
    "fault-later-read": Row(
        "each result is read, a crash is announced for an hour later: # hosts", programs.fault_later_read
    ),
    "fault-later-sharded": Row(
        "each split result is read, a crash is announced for an hour later: # hosts",
        partial(programs.fault_later_read, like="sharded"),
    ),
    "fault-later-array": Row(
        "a split array at each call, a crash is announced for an hour later: # hosts", programs.fault_later_array,
        bound=3,
    ),
    "after-fault": Row("after a crash and a repair: # hosts", programs.after_fault),
    "first-run": Row(
        "the first run of # nodes", programs.first_run, (100, 1_000, 10_000), (100, 400), gangs=one, warm=none,
        **BY_SIZE,
    ),
}  # fmt: skip

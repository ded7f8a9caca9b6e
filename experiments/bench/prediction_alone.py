"""How long CPU devices take for the computations of `prediction`, each by itself: before any case is drawn.

Plain JAX, in processes as an agent's: as often as it may be in one computation, called and waited for, less once, is
what one takes without being called. Those that wait for peers are measured in a `jax.distributed` world of as many
processes. What cores it takes meanwhile is kept too, CPU time over time; and the machine's speed, at which each round
is put. Neighbours: `prediction_cases` has the list.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from seaway.calibrating import Pace, paced

from . import members, options
from .prediction_cases import HOSTS, MATMULS, Work
from .prediction_programs import AXIS, Taken, content, key_of, repeated

MODULE = "experiments.bench.prediction_alone"
ROUNDS = 9
CALLS = 5  # of a round, of which the median counts
WARM = 2
TARGET = 0.03  # seconds of a call of many
MOST, SUMS = 512, 64  # times in a computation; of an all-reduce: all processes must say the same
PATIENCE = 180.0


def works_of(hosts: int) -> list[Work]:
    return (
        [Work("reduce", 1)] if hosts > 1 else [*(Work("matmul", rows) for rows in MATMULS), Work("reduce", 1)]
    )


def keys_of(hosts: Sequence[int]) -> list[str]:
    return [key_of(work, count) for count in sorted({1, *hosts}) for work in works_of(count)]


def taken(hosts: Sequence[int] = HOSTS["cpu"], patience: float = PATIENCE) -> dict[str, Taken]:
    """By `key_of`, on worlds of so many processes; in each process's view, that of the slowest."""
    found: dict[str, Taken] = {}
    with TemporaryDirectory() as folder, paced(Path(folder)) as pace:
        for count in sorted({1, *hosts}):
            endings = members.played(MODULE, count, members.environment(1), [str(pace.path)], bound=patience)
            for rank, ending in enumerate(endings):
                if ending.code != 0 or not ending.said:
                    raise RuntimeError(
                        f"process {rank} of {count} that measure computations by themselves ended with {ending.code}: "
                        f"{ending.words}"
                    )
            said = [msgspec.convert(ending.said[-1], dict[str, Taken]) for ending in endings]
            for key in said[0]:
                found[key] = max((each[key] for each in said), key=lambda one: one.ns / one.reference)
    return found


class Round(NamedTuple):
    """Of one execution: seconds, of the clock and of CPU; and nanoseconds of the reference meanwhile."""

    wall: float
    cpu: float
    reference: float


def of_rounds(found: Sequence[Round]) -> Taken:
    """At the median of the speeds."""
    reference = statistics.median(each.reference for each in found)
    walls = [each.wall * reference / each.reference for each in found]
    middle = statistics.median(walls)
    spread = max(abs(wall - middle) for wall in walls) / middle if middle > 0 else float("inf")
    cores = statistics.median(each.cpu / each.wall for each in found if each.wall > 0) if middle > 0 else 0.0
    return Taken(max(1, round(middle * 1e9)), spread, cores, reference)


# --- in a process of its own -----------------------------------------------------------------------------------


def member(address: str, rank: int, count: int, pace: Pace) -> None:
    import jax

    if count > 1:
        jax.distributed.initialize(address, count, rank)
    found = {
        key_of(work, count): msgspec.to_builtins(_measured(work, count, pace)) for work in works_of(count)
    }
    members.say(**found)
    members.leave()


def _measured(work: Work, count: int, pace: Pace) -> Taken:
    once, first = _compiled(work, count, 1)
    many = SUMS if work.op == "reduce" else _times(once, first)
    often, _ = _compiled(work, count, many)
    rounds = []
    for _ in range(ROUNDS):
        begun = time.monotonic_ns()
        one, all_ = _call(once, first), _call(often, first)
        wall, cpu = (max(0.0, b - a) / (many - 1) for a, b in zip(one, all_, strict=True))
        rounds.append((wall, cpu, begun, time.monotonic_ns()))
    return of_rounds([Round(wall, cpu, pace.between(begun, ended)) for wall, cpu, begun, ended in rounds])


def _times(once: Callable[[Any], Any], first: Any) -> int:
    wall, _ = _call(once, first)
    return max(2, min(MOST, round(TARGET / wall)))


def _call(work: Callable[[Any], Any], first: Any) -> tuple[float, float]:
    """Seconds of a call that is waited for, and of CPU of this process meanwhile: medians."""
    walls, cpus = [], []
    for at in range(WARM + CALLS):
        begun, spent = time.perf_counter(), time.process_time()
        work(first).block_until_ready()
        if at >= WARM:
            walls.append(time.perf_counter() - begun)
            cpus.append(time.process_time() - spent)
    return statistics.median(walls), statistics.median(cpus)


def _compiled(work: Work, count: int, times: int) -> tuple[Callable[[Any], Any], Any]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split: Any = PartitionSpec
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    whole = content(work, count)
    first = jax.make_array_from_callback(
        whole.shape, NamedSharding(mesh, split(AXIS)), lambda index: whole[index]
    )
    function = repeated(work, times)

    def one(x: Any) -> Any:
        return function(x[0])[None]

    mapped = jax.shard_map(one, mesh=mesh, in_specs=split(AXIS), out_specs=split(AXIS))
    return jax.jit(mapped).lower(first).compile(), first


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("prediction_alone", __doc__)
    parser.add_argument("--member", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.member:
        address, rank, count, pace = chosen.member
        member(address, int(rank), int(count), Pace(Path(pace)))
        return
    for key, one in taken().items():
        print(f"{key:14}{one.ns / 1e3:>12,.1f} us  spread {one.spread:.0%}  cores {one.cores:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])

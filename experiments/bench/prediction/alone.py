"""Measures how long JAX's devices take for each computation of `prediction` alone, before any case is drawn.

It runs plain JAX, in processes like an agent's. Two times are measured. A computation that repeats the work many times,
less one that does it once, gives the time without a call. Many calls in a row, less as many calls of almost nothing,
give the time with a call. Work that waits for peers is measured in a `jax.distributed` world of as many processes. The
number of busy cores (CPU time over time) and the machine's speed are kept too.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import numpy as np

from backend.agent import keep_what_is_freed
from seaway.tools.calibrating import Pace, paced

from ..frame import processes
from ..frame.jax_world import JaxWorld
from .cases import HOSTS, MATMULS, Platform, Work
from .programs import Taken, content, key_of, repeated

ROUNDS = 9
CALLS = 5  # calls of a round, of which the median is taken
WARM = 2
TARGET = 0.03  # seconds aimed at for a computation that repeats the work
MOSTLY = 0.5  # a call that returns after more than this part of its time has computed inline
MOST, SUMS = (512, 64)  # repeats in a computation: at most; of an all-reduce, fixed, since all processes must agree
PATIENCE = 180.0


def works_of(platform: Platform, hosts: int) -> list[Work]:
    """What cases do on this many hosts. On accelerators, which are one host here, no sums."""
    sums = [Work("reduce", 1)] if platform == "cpu" else []
    return sums if hosts > 1 else [*(Work("matmul", rows) for rows in MATMULS[platform]), *sums]


def taken(platform: Platform, hosts: Sequence[int] | None = None) -> dict[str, Taken]:
    """Times by `key_of`, in worlds of these sizes; of all processes of a world, the slowest one's."""
    found: dict[str, Taken] = {}
    with TemporaryDirectory() as folder, paced(Path(folder)) as pace:
        for count in sorted({1, *(HOSTS[platform] if hosts is None else hosts)}):
            words = (str(pace.path), platform)
            environment = processes.environment(1, platform)
            endings = processes.answers(member, count, environment, words, bound=PATIENCE)
            said = [msgspec.convert(each, dict[str, Taken]) for each in endings]
            for key in said[0]:
                found[key] = max((each[key] for each in said), key=lambda one: one.ns / one.reference)
    return found


class Round(NamedTuple):
    """Seconds of one execution by the clock and of CPU, and nanoseconds of the speed reference meanwhile."""

    wall: float
    cpu: float
    reference: float


def of_rounds(found: Sequence[Round], inline: bool = False) -> Taken:
    """The median of rounds, each converted to the median speed."""
    reference = statistics.median(each.reference for each in found)
    walls = [each.wall * reference / each.reference for each in found]
    middle = statistics.median(walls)
    spread = max(abs(wall - middle) for wall in walls) / middle if middle > 0 else 1.0  # infinity is not JSON
    cores = statistics.median(each.cpu / each.wall for each in found if each.wall > 0) if middle > 0 else 0.0
    return Taken(max(1, round(middle * 1e9)), spread, cores, reference, inline)


# --- in a process of its own -----------------------------------------------------------------------------------


def member(address: str, rank: int, count: int, pace_file: str, platform: Platform) -> None:
    keep_what_is_freed()
    world = JaxWorld(address, rank, count)
    found = {
        key: msgspec.to_builtins(one)
        for work in works_of(platform, count)
        for key, one in _measured(world, work, count, Pace(Path(pace_file))).items()
    }
    processes.say(**found)
    processes.leave()


def _measured(world: JaxWorld, work: Work, count: int, pace: Pace) -> dict[str, Taken]:
    once, first = _compiled(world, repeated(work, 1), content(work, count))
    wall, _, first_inline = _call(once, first)
    many = SUMS if work.op == "reduce" else max(2, min(MOST, round(TARGET / wall)))
    often, _ = _compiled(world, repeated(work, many), content(work, count))
    nothing, little = _compiled(world, _next_to_nothing, np.zeros(count, np.float32))
    more: list[Round] = []
    called: list[Round] = []
    often_inline = _call(often, first).inline
    for _ in range(ROUNDS):
        begun = time.monotonic_ns()
        one, all_ = _call(once, first), _call(often, first)
        between = time.monotonic_ns()
        bare, calls = _calls(nothing, little, many), _calls(once, first, many)
        spells = (
            (more, one, all_, many - 1, begun, between),
            (called, bare, calls, many, between, time.monotonic_ns()),
        )
        for kept, less, whole, number, since, until in spells:
            wall, cpu = (max(0.0, b - a) / number for a, b in zip(less[:2], whole[:2], strict=True))
            kept.append(Round(wall, cpu, pace.between(since, until)))
    return {
        key_of(work, count): of_rounds(more, often_inline),
        key_of(work, count, called=True): of_rounds(called, first_inline),
    }


class Call(NamedTuple):
    """Seconds by the clock and of this process's CPU. inline: the work was done when the call returned."""

    wall: float
    cpu: float
    inline: bool = False


def _call(work: Callable[[Any], Any], first: Any) -> Call:
    """Medians of single calls that are waited for."""
    walls, cpus, parts = [], [], []
    for at in range(WARM + CALLS):
        begun, spent = time.perf_counter(), time.process_time()
        made = work(first)
        returned = time.perf_counter() - begun
        made.block_until_ready()
        if at >= WARM:
            walls.append(time.perf_counter() - begun)
            cpus.append(time.process_time() - spent)
            parts.append(returned / walls[-1])
    return Call(statistics.median(walls), statistics.median(cpus), statistics.median(parts) > MOSTLY)


def _calls(work: Callable[[Any], Any], first: Any, number: int) -> Call:
    """Calls in a row, each with the last one's result."""
    made = first
    for _ in range(WARM):
        made = work(made).block_until_ready()
    begun, spent = time.perf_counter(), time.process_time()
    for _ in range(number):
        made = work(made)
    made.block_until_ready()
    return Call(time.perf_counter() - begun, time.process_time() - spent)


def _next_to_nothing(x: Any) -> Any:
    return x + 1


def _compiled(world: JaxWorld, function: Callable[[Any], Any], whole: Any) -> tuple[Callable[[Any], Any], Any]:
    """(the function compiled for all devices of the world, its first content)."""
    first = world.array(whole)
    return world.compiled(lambda x: function(x[0])[None], first), first

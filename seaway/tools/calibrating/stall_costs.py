"""Estimates stalls: how often threads are held up, and for how long, from how much equal calls differ in time.

Other work on a core (the system's, another tenant's, a page fault) is not in our CPU time. But calls that are made and
waited for one by one show it: some take longer. The simulator runs the same calls with stalls of several lengths and
frequencies. Those stalls are chosen with which simulated calls differ most like the real ones.
The computation is that of `workloads`; sim's `cores` simulates stalls.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sim.hardware import Profile, load

from .fitting import DRAWS, FittedCost, half_range
from .workloads import Rig

WARM = 20
LEAST = 100  # calls needed for an estimate
SLOWEST = 5  # times as long as asked for, at most, until a slow machine has made so many
TAIL = (0.75, 0.9, 0.95, 0.99)  # quantiles of the calls' times that are compared, relative to the median
LENGTHS = (100_000, 200_000, 400_000, 800_000, 1_600_000)  # nanoseconds
PARTS = (0.01, 0.025, 0.05, 0.1)  # of a thread's time


class StallCosts(NamedTuple):
    """each: mean nanoseconds of a stall. every: mean nanoseconds of work from one stall to the next."""

    each: int
    every: int


class FoundStalls(NamedTuple):
    each: FittedCost
    every: FittedCost


NONE = StallCosts(0, 0)
ALL = (NONE, *(StallCosts(each, round(each / part)) for each, part in product(LENGTHS, PARTS)))
Shape = tuple[float, ...]


def calls(rig: Rig, seconds: float) -> list[float]:
    """Make and wait for calls one by one, for some seconds, or longer where these are too few for an estimate.
    Returns nanoseconds of each."""
    x: Any = rig.first
    for _ in range(WARM):
        x = rig.step(x).block_until_ready()
    found: list[float] = []
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds or (len(found) < LEAST and spent < SLOWEST * seconds):
        begun = time.monotonic_ns()
        x = rig.step(x).block_until_ready()
        found.append(float(time.monotonic_ns() - begun))
    return found


def found_in(waited: Sequence[float], played: Mapping[StallCosts, Shape], draws: int = DRAWS) -> FoundStalls | None:
    """The stalls that make simulated calls most like these. Spreads come from resampled calls."""
    took = np.array(waited)
    if len(took) < LEAST:
        return None
    best = nearest(shape(took), played)
    random = np.random.default_rng(0)
    drawn = [nearest(shape(random.choice(took, len(took))), played) for _ in range(draws)]
    return FoundStalls(*(
        FittedCost(float(best[at]), half_range([one[at] for one in drawn]) / best[at] if best[at] else 0.0)
        for at in (0, 1)
    ))  # fmt: skip


def shape(took: Any) -> Shape:
    """Times of the longer calls, by quantile, relative to the median."""
    usual, *tail = np.quantile(took, (0.5, *TAIL)).tolist()
    return tuple(one / usual for one in tail)


def nearest(one: Shape, played: Mapping[StallCosts, Shape]) -> StallCosts:
    return min(played, key=lambda stalls: sum(abs(np.log(a / b)) for a, b in zip(one, played[stalls], strict=True)))


def simulated(table: dict[str, Any], devices: int, lasts: int, count: int) -> dict[StallCosts, Shape]:
    """Shapes of `count` simulated calls, for each of the stalls. table: a cluster's. lasts: the computation's time."""
    profile = load(table).profile
    assert profile is not None
    return {stalls: shape(played(table, devices, lasts, with_stalls(profile, stalls), count)) for stalls in ALL}


def with_stalls(profile: Profile, stalls: StallCosts) -> Profile:
    return profile.changed(stall=stalls.each, stall_every=stalls.every)


def played(table: dict[str, Any], devices: int, lasts: int, profile: Profile, count: int) -> list[int]:
    """Nanoseconds of each simulated call."""
    import seaway as sw

    found = []
    with sw.simulate(table, profile=profile, progress=False) as session:
        step = sw.synthetic("step", devices=sw.slice(devices=devices), duration=f"{max(1, lasts)}ns", collective=False)
        x: Any = np.float32(0)
        for at in range(-WARM, count):
            begun = session.driver.now()
            x = step(x).block_until_ready()
            if at >= 0:
                found.append(session.driver.now() - begun)
    return found

"""How far one call differs from the next, though all do the same: what holds threads up, how often and for how long.

Whatever else has a core now and then (the system's own work, another's threads, a page that is not there) is in no CPU
time of ours. Calls that are made and waited for one by one show it: some last longer. The simulator plays the same
calls with stalls of several lengths, more and less often, and those count with which its calls differ as the real
ones did. Neighbours: `workloads`, whose computation this is; sim's `cores`, which plays stalls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sim.hardware import Profile, load

from .fitting import DRAWS, Cost, half_range
from .workloads import Rig

WARM = 20
LEAST = 100  # calls, or nothing is said
TAIL = (
    0.75,
    0.9,
    0.95,
    0.99,
)  # parts of the calls that take less: how much more these take than the usual one
LENGTHS = (100_000, 200_000, 400_000, 800_000, 1_600_000)  # nanoseconds
PARTS = (0.01, 0.025, 0.05, 0.1)  # of a thread's time


class Waited(NamedTuple):
    """A call that was waited for, nanoseconds. span: monotonic ones."""

    took: float
    span: tuple[int, int]

    def scaled(self, by: float) -> Waited:
        return self._replace(took=self.took * by)


class Stalls(NamedTuple):
    """each: how long one lasts. every: how much work there is from one to the next. Nanoseconds, means."""

    each: int
    every: int


class Found(NamedTuple):
    each: Cost
    every: Cost


NONE = Stalls(0, 0)
ALL = (NONE, *(Stalls(each, round(each / part)) for each, part in product(LENGTHS, PARTS)))
Shape = tuple[float, ...]


def calls(rig: Rig, seconds: float) -> list[Waited]:
    """For so long."""
    x: Any = rig.first
    for _ in range(WARM):
        x = rig.step(x).block_until_ready()
    found = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic_ns()
        x = rig.step(x).block_until_ready()
        ended = time.monotonic_ns()
        found.append(Waited(float(ended - begun), (begun, ended)))
    return found


def found_in(waited: Sequence[Waited], played: Mapping[Stalls, Shape], draws: int = DRAWS) -> Found | None:
    """The stalls that make simulated calls most like these. Spreads: of calls drawn anew from these."""
    took = np.array([each.took for each in waited])
    if len(took) < LEAST:
        return None
    best = nearest(shape(took), played)
    random = np.random.default_rng(0)
    drawn = [nearest(shape(random.choice(took, len(took))), played) for _ in range(draws)]
    return Found(*(
        Cost(float(best[at]), half_range([one[at] for one in drawn]) / best[at] if best[at] else 0.0) for at in (0, 1)
    ))  # fmt: skip


def shape(took: Any) -> Shape:
    """How much longer than the usual call the longer ones take."""
    usual, *tail = np.quantile(took, (0.5, *TAIL)).tolist()
    return tuple(one / usual for one in tail)


def nearest(one: Shape, played: Mapping[Stalls, Shape]) -> Stalls:
    return min(
        played, key=lambda stalls: sum(abs(np.log(a / b)) for a, b in zip(one, played[stalls], strict=True))
    )


def simulated(table: dict[str, Any], devices: int, lasts: int, count: int) -> dict[Stalls, Shape]:
    """Of so many calls in the simulator, with each of all stalls. table: of a cluster; lasts: of the computation."""
    profile = load(table).profile
    assert profile is not None
    return {
        stalls: shape(played(table, devices, lasts, with_stalls(profile, stalls), count)) for stalls in ALL
    }


def with_stalls(profile: Profile, stalls: Stalls) -> Profile:
    return profile.changed(stall=stalls.each, stall_every=stalls.every)


def played(table: dict[str, Any], devices: int, lasts: int, profile: Profile, count: int) -> list[int]:
    """Nanoseconds of each."""
    import seaway as sw

    found = []
    with sw.simulate(table, profile=profile, progress=False) as session:
        step = sw.synthetic(
            "step", devices=sw.slice(devices=devices), duration=max(1, lasts), collective=False
        )
        x: Any = np.float32(0)
        for at in range(-WARM, count):
            begun = session.driver.now()
            x = step(x).block_until_ready()
            if at >= 0:
                found.append(session.driver.now() - begun)
    return found

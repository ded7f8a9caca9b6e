"""What gangs did on their devices, as far as a simulation knows it: their own work, and each collective on its links.

A trace has one row a gang, and when it began and ended. The simulator knows why it took so long: the kernel, the place,
and what each collective takes there. `StepWork` has that for each kernel and place once, and `GangWorks` says which of
them a gang did. Real runs have none: nobody looks into a compiled program there.

Neighbours: `sim.simulation` notes it; `trace` and `storage` carry it; `chakra` writes it as nodes. The functions that
matter: `of_simulation`, `GangWorks.by_seq`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from core.model import Place
from sim.hardware import Collective, collective_time

from .times import Ints

if TYPE_CHECKING:
    from sim.simulation import Simulation


class LinkUse(msgspec.Struct, frozen=True):
    """A collective of a step. `takes`: nanoseconds of one execution, whatever is computed beside it."""

    collective: Collective
    takes: int


class StepWork(msgspec.Struct, frozen=True):
    """What each device of a place does in one step of a gang."""

    place: Place
    duration: int  # nanoseconds, without collectives
    flops: float = 0.0
    hbm_bytes: float = 0.0
    collectives: tuple[LinkUse, ...] = ()
    steps: int = 1  # that its gang has; it may be cut to fewer

    @property
    def takes(self) -> int:
        """Nanoseconds, with what of its collectives no work hides."""
        return self.duration + sum(
            use.collective.count * max(0, use.takes - use.collective.hidden) for use in self.collectives
        )


class GangWorks(NamedTuple):
    """`works[i]` (an index in `steps`) is what each step of gang `seqs[i]` did."""

    seqs: Ints
    works: Ints
    steps: list[StepWork]

    def by_seq(self) -> dict[int, StepWork]:
        return {seq: self.steps[work] for seq, work in zip(self.seqs.tolist(), self.works.tolist(), strict=True)}


NOTHING = GangWorks(np.empty(0, np.int64), np.empty(0, np.int64), [])


def nothing() -> GangWorks:
    return NOTHING


def of_simulation(sim: Simulation) -> GangWorks:
    seqs, works = (np.array(column, dtype=np.int64) for column in sim.worked)
    found, first = np.unique(seqs, return_index=True)  # what is ordered again is noted again
    steps = []
    for kernel, place, most in sim.works:
        island, chip = sim.cluster.islands[place.island], sim.setup.chips[place.island]
        alone = [msgspec.structs.replace(one, count=1, hidden=0) for one in kernel.collectives]
        uses = [
            LinkUse(one, collective_time(each, place, island, chip))
            for one, each in zip(kernel.collectives, alone, strict=True)
        ]
        steps.append(StepWork(place, kernel.duration, kernel.flops, kernel.hbm_bytes, tuple(uses), most))
    return GangWorks(found, works[first], steps)

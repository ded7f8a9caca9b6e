"""A computation's collectives on the cluster that it is priced for, where its mesh lies and nothing else runs."""

from collections import Counter
from typing import Literal

from msgspec.structs import replace

from core.model import SliceSpec
from sim.hardware import Setup, collective_time

from ..units import show_time
from .cost import Cost, collective_of
from .hlo import HloCollective
from .idle_cluster import IdleCluster
from .lowering import Lowered

Overlap = Literal["scheduled", "none", "full"]
SLOWER = 1.05  # times as long, from which another slice is worth a word


class OnTarget:
    def __init__(self, setup: Setup, lowered: Lowered) -> None:
        self.setup = setup
        self.axes = {name: size for name, size, _ in lowered.axes}
        self.idle = IdleCluster(setup)
        self.loose = SliceSpec("", lowered.devices)
        self.laid = replace(self.loose, mesh=tuple(self.axes.values()))
        self.fits = self.idle.place(self.laid) is not None
        self.spec = self.laid if self.fits else self.loose

    def takes(self, one: HloCollective) -> int:
        """Nanoseconds of one execution, if nothing hides it."""
        found = self.idle.place(self.spec)
        if found is None:
            return 0
        alone = replace(collective_of(one), count=1, hidden=0)
        return collective_time(alone, found[0], self.setup.cluster.islands[found[1]], self.setup.chips[found[1]])

    def overlapped(self, cost: Cost, overlap: Overlap) -> Cost:
        """The cost, whose collectives hide as `scheduled`, with another overlap; and what its step takes with each."""
        takes = [self.takes(one) for one in cost.collectives]
        exchanged = sum(one.count * time for one, time in zip(cost.collectives, takes, strict=True))
        step = self.idle.time(cost.kernel, self.spec)
        steps = {"none": cost.duration + exchanged, "scheduled": step, "full": max(cost.duration, exchanged)}
        if overlap != "scheduled":
            share = min(1.0, cost.duration / exchanged) if overlap == "full" and exchanged else 0.0
            counts: Counter[HloCollective] = Counter()
            for one, time in zip(cost.collectives, takes, strict=True):
                counts[replace(one, hidden=int(time * share), count=1)] += one.count
            cost = replace(cost, collectives=tuple(replace(one, count=count) for one, count in counts.items()))
        mesh = ", ".join(f"{name!r}: {size}" for name, size in self.axes.items())
        notes = list(cost.notes)
        if not self.fits:
            notes.append(f"mesh={{{mesh}}} does not lie on {cost.target}, whose devices are taken in their own order")
        elif (loose := self.idle.time(cost.kernel, self.loose)) > SLOWER * steps[overlap]:
            slower = f"sw.slice(devices={cost.devices}) takes {show_time(loose)} for a step"
            notes.append(f"{slower}: better sw.slice(mesh={{{mesh}}}), whose neighbours are neighbours on the torus")
        return replace(cost, overlap=overlap, steps=steps, notes=tuple(notes))

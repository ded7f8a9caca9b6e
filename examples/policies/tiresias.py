"""Tiresias: the job that has had the least service goes first, and takes devices from those that have had more.

    seaway simulate examples/jobs.py --cluster A --policy examples/policies/tiresias.py:Tiresias

Nobody needs to know how long a job will take: one that turns out to be short is served at once. Service is devices
times time, so it has two dimensions (2D-LAS; Gu et al., NSDI 2019). It counts in levels, each `factor` times as wide as
the one below, so that equals do not take devices from each other all the time; within a level, jobs go in turn.
"""

from __future__ import annotations

from seaway.policies import NEVER, ClusterView, Placement, SliceUse


class Tiresias(Placement):
    """The lowest level of service goes first. `quantum`: device nanoseconds on the lowest level."""

    def __init__(self, quantum: int = 3_600_000_000_000, factor: int = 10) -> None:
        self.quantum, self.factor = quantum, factor

    def level(self, use: SliceUse, now: int) -> tuple[int, int]:
        """(the level, the time until it is on the next one, while it runs)."""
        had, level, edge = use.served(now) * use.devices, 0, self.quantum
        while had >= edge:
            level, edge = level + 1, edge * self.factor
        return level, -(-(edge - had) // use.devices)

    def decide(self, cluster: ClusterView) -> None:
        now = cluster.now
        every = sorted((*cluster.waiting, *cluster.running), key=lambda use: (self.level(use, now)[0], use.number))
        chosen = cluster.together(every)
        for use in every:
            if use.number not in chosen and use.at is not None:
                cluster.suspend(use)
        for use in every:
            if use.number in chosen and use.at is None:
                cluster.start(use, chosen[use.number])
        cluster.wake(min((now + self.level(use, now)[1] for use in cluster.running), default=NEVER))

"""Gavel: max-min fairness on kinds of devices that suit jobs differently well.

    seaway simulate examples/jobs.py --cluster A --policy examples/policies/gavel.py:MaxMin

A linear program says which part of its time each job should be on each kind, so that the job that is worst off is as
well off as can be: against an equal part of all kinds (Narayanan et al., OSDI 2020, with one size a job and no space
sharing). Rounds approach these parts: on each kind, those go first that are furthest behind their part of it. It rests
on how long jobs say that they need each kind.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]

from seaway.policies import ClusterView, Placement, SliceUse


class MaxMin(Placement):
    """The job that is worst off is as well off as can be. `round_time`: nanoseconds between two looks."""

    def __init__(self, round_time: int = 360_000_000_000) -> None:
        self.round_time, self.due = round_time, 0
        self.had: dict[tuple[int, str], float] = {}  # (job, kind) -> rounds
        self.parts: dict[tuple[int, str], float] = {}
        self.jobs: list[int] = []
        self.goals: dict[int, str] = {}  # job -> the island where it should be in this round

    def decide(self, cluster: ClusterView) -> None:
        uses = sorted((*cluster.waiting, *cluster.running), key=lambda use: use.number)
        if not uses:
            return
        if [use.number for use in uses] != self.jobs:
            self.jobs, self.parts, self.had = [use.number for use in uses], parts_of(uses, cluster), {}
        if cluster.now >= self.due:
            self.due = cluster.now + self.round_time
            self.goals = self._goals(uses, cluster)
        for use in cluster.running:
            if use.at is not None and self.goals.get(use.number) != use.at.name:
                cluster.suspend(use)
        for use in cluster.waiting:
            for island in cluster.islands:
                if self.goals.get(use.number) == island.name:
                    cluster.start(use, island)
        cluster.wake(self.due)

    def _goals(self, uses: list[SliceUse], cluster: ClusterView) -> dict[int, str]:
        """Which island each should be on in this round, if any: the largest of (part by rounds had) goes first."""
        free = {island.name: island.island.devices for island in cluster.islands}
        ranks = [
            (-self.parts[use.number, island.kind] / (0.1 + self.had.get((use.number, island.kind), 0)), use.number, at)
            for use in uses for at, island in enumerate(cluster.islands)
            if self.parts.get((use.number, island.kind), 0) > 1e-6
        ]  # fmt: skip
        found: dict[int, str] = {}
        devices = {use.number: use.devices for use in uses}
        for _, number, at in sorted(ranks):
            island = cluster.islands[at]
            if number not in found and free[island.name] >= devices[number]:
                free[island.name] -= devices[number]
                found[number] = island.name
                key = number, island.kind
                self.had[key] = self.had.get(key, 0) + 1
        return found


def parts_of(uses: list[SliceUse], cluster: ClusterView) -> dict[tuple[int, str], float]:
    """(job, kind) -> the part of its time that it should be there."""
    room: dict[str, int] = {}
    for island in cluster.islands:
        room[island.kind] = room.get(island.kind, 0) + island.island.devices
    kinds = list(room)
    speed = np.array([[speed_of(use, kind) for kind in kinds] for use in uses])
    equal = np.array([[room[kind] for kind in kinds]]) / sum(room.values())
    normed = speed / np.maximum((speed * equal).sum(axis=1, keepdims=True), 1e-300)
    jobs, count = normed.shape
    # variables: the parts, by job and kind; then the worst of what jobs get
    worst = [[*(-normed[job, k] if job == at else 0.0 for job in range(jobs) for k in range(count)), 1.0]
             for at in range(jobs)]  # fmt: skip
    whole = [[*(float(job == at) for job in range(jobs) for _ in range(count)), 0.0] for at in range(jobs)]
    fits = [[*(float(uses[job].devices * (k == at)) for job in range(jobs) for k in range(count)), 0.0]
            for at in range(count)]  # fmt: skip
    limits = [0.0] * jobs + [1.0] * jobs + [float(room[kind]) for kind in kinds]
    found = linprog([0.0] * (jobs * count) + [-1.0], A_ub=[*worst, *whole, *fits], b_ub=limits).x
    return {(use.number, kind): float(found[job * count + k])
            for job, use in enumerate(uses) for k, kind in enumerate(kinds)}  # fmt: skip


def speed_of(use: SliceUse, kind: str) -> float:
    """One that says nothing is as fast on all kinds; one that names kinds does not run on others."""
    return 1 / use.needs(kind) if use.needs(kind) else float(not use.expected)

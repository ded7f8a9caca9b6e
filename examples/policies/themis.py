"""Themis: devices go to the jobs that are worst off by finish-time fairness.

    seaway simulate jobs.py --policy examples/policies/themis.py:Themis

A job's rho is the time that it will have taken from arrival to end, by the time that it would take if it had one n-th
of the cluster to itself, where n clients contend (Mahajan et al., NSDI 2020). Devices are held on leases; when one runs
out, those with the largest rho get devices, whoever had them. The paper lets jobs bid for devices; here each has one
size, so there is nothing to bid. It rests on how long jobs say that they need.
"""

from __future__ import annotations

from seaway.policies import ClusterView, Placement, SliceUse


class Themis(Placement):
    """The largest rho goes first, at the end of each lease."""

    def __init__(self, lease: int = 600_000_000_000) -> None:
        self.lease, self.due = lease, 0

    def decide(self, cluster: ClusterView) -> None:
        uses = [*cluster.waiting, *cluster.running]
        if cluster.now >= self.due and uses:
            self.due = cluster.now + self.lease
            uses.sort(key=lambda use: (-self.rho(use, cluster), use.number))
            chosen = cluster.together(uses)
            for use in cluster.running:
                if use not in chosen:
                    cluster.suspend(use)
        for use in sorted(cluster.waiting, key=lambda use: (-self.rho(use, cluster), use.number)):
            cluster.start(use)
        if uses:
            cluster.wake(self.due)

    @staticmethod
    def rho(use: SliceUse, cluster: ClusterView) -> float:
        kind = use.at.kind if use.at is not None else cluster.suits(use)[0].kind
        clients = {each.client for each in (*cluster.waiting, *cluster.running)}
        size = sum(island.island.devices for island in cluster.islands)
        alone = use.needs(kind) * max(1.0, use.devices * len(clients) / size)
        return (cluster.now - use.asked + use.left(kind, cluster.now)) / max(alone, 1)

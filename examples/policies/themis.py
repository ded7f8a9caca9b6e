"""Themis: devices go to the jobs that are worst off by finish-time fairness.

    seaway simulate examples/jobs.py --cluster A --policy examples/policies/themis.py:Themis

A client's rho is the time that its jobs will have taken when all are over, by the time that they would take if it had
one n-th of the cluster to itself, where n clients contend (Mahajan et al., NSDI 2020). Devices are held on leases; when
one runs out, the jobs of the clients with the largest rho get devices, whoever had them. The paper lets clients bid for
devices; here each job has one size, so there is nothing to bid. It rests on how long jobs say that they need.
"""

from __future__ import annotations

from seaway.policies import ClusterView, Placement, SliceUse


class Themis(Placement):
    """The largest rho goes first, at the end of each lease."""

    def __init__(self, lease: int = 600_000_000_000) -> None:
        self.lease, self.due = lease, 0

    def decide(self, cluster: ClusterView) -> None:
        rho = fairness(cluster)

        def order(use: SliceUse) -> tuple[float, int]:
            return -rho[use.client], use.number

        if cluster.now >= self.due and rho:
            self.due = cluster.now + self.lease
            chosen = cluster.together(sorted((*cluster.waiting, *cluster.running), key=order))
            for use in cluster.running:
                if use.number not in chosen:
                    cluster.suspend(use)
        for use in sorted(cluster.waiting, key=order):
            cluster.start(use)
        if rho:
            cluster.wake(self.due)


def fairness(cluster: ClusterView) -> dict[int, float]:
    """By client, its rho."""
    mine: dict[int, list[SliceUse]] = {}
    for use in (*cluster.waiting, *cluster.running):
        mine.setdefault(use.client, []).append(use)
    part = sum(island.island.devices for island in cluster.islands) / max(1, len(mine))
    found = {}
    for client, uses in mine.items():
        kinds = [(use, use.at.kind if use.at is not None else cluster.suits(use)[0].kind) for use in uses]
        alone = sum(use.needs(kind) * use.devices for use, kind in kinds) / part
        left = sum(use.left(kind, cluster.now) * use.devices for use, kind in kinds) / part
        found[client] = (cluster.now - min(use.asked for use in uses) + left) / max(alone, 1)
    return found

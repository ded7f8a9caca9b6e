"""Backfilling of jobs: small ones go before the first that does not fit, where they do not delay it.

    seaway simulate examples/jobs.py --cluster A --policy examples/policies/job_backfill.py:Easy

`Easy` (Lifka 1995) keeps devices for the first job that waits, and for no other. `Conservative` keeps them for each, so
none is delayed by one that was asked for later. Both rest on how long jobs say that they need their devices
(`sw.slice(expected=...)`, which `sw.workload.Job` says by itself); one that says nothing is expected to end never.
"""

from __future__ import annotations

from seaway.policies import NEVER, ClusterView, IslandUse, Placement, SliceUse


class Easy(Placement):
    """The first that does not fit has a reservation; others start before it only if it can start as early all the
    same."""

    def decide(self, cluster: ClusterView) -> None:
        waiting = cluster.waiting
        while waiting and cluster.start(waiting[0]):
            del waiting[0]
        if not waiting:
            return
        head, *others = waiting
        shadow = {island.name: cluster.free_at(head, island) for island in cluster.suits(head)}
        best = min(shadow, key=lambda name: shadow[name], default="")
        for use in others:
            for island in cluster.suits(use):
                at, spare = shadow[island.name] if island.name == best else (NEVER, island.free)
                early = cluster.now + (use.left(island.kind, cluster.now) or NEVER) <= at
                if (early or use.devices <= spare) and cluster.start(use, island):
                    if island.name == best and not early:
                        shadow[best] = at, spare - use.devices
                    break


class Conservative(Placement):
    """Each has a reservation, in the order in which they were asked for."""

    def decide(self, cluster: ClusterView) -> None:
        plans = {island.name: self._levels(cluster, island) for island in cluster.islands}
        for use in cluster.waiting:
            found = [(*self._earliest(plans[island.name], use, island, cluster.now), island.name, island)
                     for island in cluster.suits(use)]  # fmt: skip
            begin, end, name, island = min(found, key=lambda each: each[:3])
            if begin == cluster.now:
                cluster.start(use, island)
            self._take(plans[name], begin, end, use.devices)

    @staticmethod
    def _levels(cluster: ClusterView, island: IslandUse) -> list[tuple[int, int]]:
        """(time, devices that are free from then on)."""
        ends = sorted((use.ends(cluster.now), use.devices) for use in cluster.running if use.at is island.island)
        free = island.free
        levels = [(cluster.now, free)]
        for end, devices in ends:
            free += devices
            levels.append((end, free))
        return levels

    @staticmethod
    def _earliest(levels: list[tuple[int, int]], use: SliceUse, island: IslandUse, now: int) -> tuple[int, int]:
        """When it can have its devices for as long as it needs them, and when that is over."""
        lasts = use.left(island.kind, now) or NEVER
        for number, (begin, _) in enumerate(levels):
            late = next((at for at, free in levels[number:] if free < use.devices), NEVER)
            if begin + lasts <= late or late == NEVER:
                return begin, begin + lasts
        return NEVER, NEVER

    @staticmethod
    def _take(levels: list[tuple[int, int]], begin: int, end: int, devices: int) -> None:
        for edge in (begin, end):
            if all(at != edge for at, _ in levels):
                levels.append((edge, [free for at, free in sorted(levels) if at < edge][-1]))
        levels.sort(key=lambda level: level[0])
        levels[:] = [(at, free - devices if begin <= at < end else free) for at, free in levels]

"""Sizes by marginal gain, as in Pollux: each device goes to the job that it speeds up most.

    seaway simulate examples/jobs.py --cluster A --policy examples/policies/pollux.py:MarginalGain

Jobs have slices of several sizes (`sw.slice(devices=(2, 16))`, `Job(sizes=...)`). Each gets its least size, in turn;
then whatever is free goes, step by step, where the speed-up by one more step is largest for its devices. Pollux (Qiao
et al., OSDI 2021) fits each job's speed as it runs, and tunes batch sizes; here one curve stands for all.
"""

from __future__ import annotations

from seaway.policies import ClusterView, Placement, SliceUse


class MarginalGain(Placement):
    """Each device goes to the job that it speeds up most. `exponent`: n devices are n to the power of it times as
    fast."""

    resizes = True

    def __init__(self, exponent: float = 0.8) -> None:
        self.exponent = exponent

    def decide(self, cluster: ClusterView) -> None:
        goals = self._goals(cluster)
        running = [use for use in cluster.running if use.sizes]
        for use in running:  # those that shrink make room
            if goals[use.number] < use.devices:
                cluster.resize(use, goals[use.number])
        for use in cluster.waiting:
            cluster.start(use)
        for use in running:
            if goals[use.number] > use.devices:
                cluster.resize(use, goals[use.number])

    def _goals(self, cluster: ClusterView) -> dict[int, int]:
        """The number of devices that each should have, on the only island, or as if all were one."""
        uses = [*cluster.running, *cluster.waiting]
        room = sum(island.free for island in cluster.islands) + sum(use.devices for use in cluster.running)
        goals: dict[int, int] = {}
        for use in sorted(uses, key=lambda use: use.number):
            least = use.sizes[0] if use.sizes else use.devices
            if least <= room or use.at is not None:
                goals[use.number], room = least, room - least
        while True:
            steps = [(-self._gain(use, goals[use.number], more), use.number, more)
                     for use in uses if use.number in goals for more in self._next(use, goals[use.number])
                     if more - goals[use.number] <= room]  # fmt: skip
            if not steps:
                return {use.number: goals.get(use.number, use.devices) for use in uses}
            _, number, more = min(steps)
            room -= more - goals[number]
            goals[number] = more

    @staticmethod
    def _next(use: SliceUse, size: int) -> list[int]:
        return [each for each in use.sizes if each > size][:1]

    def _gain(self, use: SliceUse, size: int, more: int) -> float:
        """In speed relative to that with the least size, a device."""
        fast = [(each / use.sizes[0]) ** self.exponent for each in (size, more)]
        return (fast[1] - fast[0]) / (more - size)

"""The collective worlds of islands: an epoch's world stands when all its members have come to it."""

from __future__ import annotations

from collections.abc import Callable

from core import effects as e
from core import spans
from core.topology import Cluster

from .clock import Clock


class Worlds:
    """`tell(host, event)`: that it stands."""

    def __init__(
        self, clock: Clock, cluster: Cluster, join: int, tell: Callable[[int, e.Effect], None]
    ) -> None:
        self._clock, self._cluster, self._join, self._tell = clock, cluster, join, tell
        self._come: dict[tuple[int, int], dict[int, int]] = {}  # (island, epoch) -> host -> when

    def come(self, host: int, effect: e.Reform, at: int) -> None:
        key = (self._cluster.island_of_host(host).index, effect.epoch)
        here = self._come.setdefault(key, {})
        here[host] = at
        if len(here) == spans.count(effect.members):
            del self._come[key]
            stands = max(here.values()) + self._join
            for member in sorted(here):
                self._clock.at(stands, self._tell, member, e.Reformed(effect.epoch))

    def forget(self, host: int) -> None:
        for here in self._come.values():
            here.pop(host, None)

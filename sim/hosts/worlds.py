"""The collective worlds of islands: an epoch's world is ready when all its members have joined."""

from __future__ import annotations

from collections.abc import Callable

from core.model import Cluster, spans
from core.protocol import effects as e

from ..engine import SimClock


class SimWorlds:
    """Forms worlds, and calls `tell(host, event)` for each member when its world is ready."""

    def __init__(self, clock: SimClock, cluster: Cluster, join: int, tell: Callable[[int, e.Event], None]) -> None:
        self._clock, self._cluster, self._join, self._tell = clock, cluster, join, tell
        self._come: dict[tuple[int, int], dict[int, int]] = {}  # (island, epoch) -> host -> when it joined
        self._waits: dict[int, int] = {}  # host -> the epoch that it last joined

    def come(self, host: int, effect: e.Reform, at: int) -> None:
        key = (self._cluster.island_of_host(host).index, effect.epoch)
        here = self._come.setdefault(key, {})
        here[host] = at
        self._waits[host] = effect.epoch
        if len(here) == spans.count(effect.members):
            del self._come[key]
            stands = max(here.values()) + self._join
            for member in sorted(here):
                self._clock.at(stands, self._stands, member, effect.epoch)

    def _stands(self, host: int, epoch: int) -> None:
        if self._waits.get(host) == epoch:  # else it has left, or has joined another epoch
            self._tell(host, e.Reformed(epoch))

    def forget(self, host: int) -> None:
        self._waits.pop(host, None)
        for here in self._come.values():
            here.pop(host, None)

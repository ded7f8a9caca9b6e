"""Devices that compute on their hosts' cores, as CPU devices do, in competition with the hosts' own threads.

    fabric --run(devices by host, times)--> each takes a core, slice after slice --> all have computed, and links passed

A device computes in short slices, because the operating system gives a core to a thread that wakes up before one that
goes on computing. A collective's time on the links is waiting, and needs no core.

A computation that keeps several cores busy has as many threads: one works all the time that it takes by itself, the
others share what is computed beside it. It ends when all its threads have worked.

Neighbours: `hosts.device_queues` calls `run` for gangs at the head of its queues; `cores` hands out cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING

from ..hosts import Takes
from .cores import DEVICE, Cores, Share

if TYPE_CHECKING:
    from ..engine import SimClock
    from ..hosts import Process

SLICE = 100_000  # nanoseconds
NEGLIGIBLE = 0.05  # of a core


class Computing:
    """Runs gangs on cores. `cores`: by host. `process_of`: the current process of a host, which may be replaced."""

    def __init__(self, clock: SimClock, cores: dict[int, Cores], process_of: Callable[[int], Process]) -> None:
        self._clock, self._cores, self._process_of = clock, cores, process_of
        self._turns = 0

    def here(self, host: int) -> bool:
        return host in self._cores

    def run(self, devices: Mapping[int, int], takes: Takes, then: Callable[[], None]) -> None:
        """Calls `then` when the given number of devices of each host have computed, and then waited for the links."""
        threads = threads_of(takes)
        left = sum(number * len(threads) if self.here(host) else 1 for host, number in devices.items())

        def over() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._clock.at(self._clock.now + takes.links, then)

        for host, number in devices.items():
            if not self.here(host):
                self._clock.at(self._clock.now + takes.own, over)
                continue
            share = self._cores[host].share(self._process_of(host), DEVICE)
            for _ in range(number):
                for own in threads:
                    self._ask(share, own, over)

    def _ask(self, share: Share, left: int, then: Callable[[], None]) -> None:
        self._turns += 1
        share.ask((0, self._turns), self._begin, share, left, then)

    def _begin(self, share: Share, left: int, then: Callable[[], None]) -> None:
        now = min(SLICE, left)
        self._clock.at(self._clock.now + now, self._worked, share, left - now, then)

    def _worked(self, share: Share, left: int, then: Callable[[], None]) -> None:
        share.give_back(self._clock.now)
        if left:
            self._ask(share, left, then)
        else:
            then()


def threads_of(takes: Takes) -> tuple[int, ...]:
    """Nanoseconds that each of a computation's threads works."""
    others = ceil(takes.cores - NEGLIGIBLE) - 1
    if others < 1:
        return (takes.own,)
    return (takes.own, *(round(takes.own * min(1.0, (takes.cores - 1.0) / others)),) * others)

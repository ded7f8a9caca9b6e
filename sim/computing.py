"""Devices that compute on their hosts' cores, as a CPU's do: a share of them, in slices, beside the hosts' own work.

    fabric --run(host, devices, own time)--> a core a device, slice after slice --> all of them are through

A slice is short, because the operating system gives a core to a thread that wakes up before one that computes on.
What a collective takes on the links is waiting, and needs no core. Neighbours: `devices`, whose queues these are;
`cores`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .cores import DEVICE, Cores, Share

if TYPE_CHECKING:
    from .clock import Clock
    from .processes import Process

SLICE = 100_000  # nanoseconds


class Computing:
    """`cores`: by host. `host_of`: the process of a host, which may be another tomorrow."""

    def __init__(self, clock: Clock, cores: dict[int, Cores], process_of: Callable[[int], Process]) -> None:
        self._clock, self._cores, self._process_of = clock, cores, process_of
        self._turns = 0

    def here(self, host: int) -> bool:
        return host in self._cores

    def run(self, host: int, devices: int, took: int, then: Callable[[], None]) -> None:
        """`then` is called when so many devices of this host have computed for so long each."""
        share = self._cores[host].share(self._process_of(host), DEVICE)
        left = [devices]

        def over() -> None:
            left[0] -= 1
            if not left[0]:
                then()

        for _ in range(devices):
            self._ask(share, took, over)

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

"""Devices that compute on their hosts' cores, as CPU devices do, in competition with the hosts' own threads.

    fabric --run(devices by host, times)--> each thread takes a core, slice after slice --> all have finished

A gang on one device has several threads: the first is busy all the time, the others for part of it. A thread
computes in short slices, because the operating system gives a core to a thread that wakes up before one that goes on
computing. A collective has rounds: no thread begins a round before all have ended the previous one. The time on the
links is waiting, and needs no core; but each host needs a core in each round, so on a busy machine it waits in each.
A thread that begins a collective, or finds that others have used its core since its last slice, pays `meet`.

Neighbours: `hosts.device_queues` calls `run` for gangs at the head of its queues; `cores` hands out cores;
`hardware.kernels` describe the computations.
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
ROUNDS = 256  # most rounds of a gang that are simulated; further ones are merged into these


class Computing:
    """Runs gangs on cores. `cores`: by host. `process_of`: the current process of a host, which may be replaced."""

    def __init__(
        self, clock: SimClock, cores: dict[int, Cores], process_of: Callable[[int], Process], meet: int = 0
    ) -> None:  # fmt: skip
        self._clock, self._cores, self._process_of, self._meet = clock, cores, process_of, meet
        self._turns = 0

    def here(self, host: int) -> bool:
        return host in self._cores

    def run(self, devices: Mapping[int, int], takes: Takes, then: Callable[[], None]) -> None:
        """Calls `then` when the given number of devices of each host have computed, and exchanged data in all
        rounds."""
        many = max(1, min(takes.rounds, ROUNDS))
        shares = {
            host: self._cores[host].share(self._process_of(host), DEVICE)
            for host in devices
            if self.here(host)
        }
        threads = ceil(takes.cores)

        def begin(turn: int) -> None:
            if turn == many:
                then()
                return
            own = part(takes.own, turn, many)
            beside = round(own * (takes.cores - 1) / (threads - 1)) if threads > 1 else 0
            meet = self._meet * begun(takes.meets, turn, many)
            left = [sum(threads * devices[host] for host in shares) + len(devices) - len(shares)]

            def over() -> None:
                left[0] -= 1
                if not left[0]:
                    self._clock.at(self._clock.now + part(takes.links, turn, many), begin, turn + 1)

            for host in devices:
                if host not in shares:
                    self._clock.at(self._clock.now + own, over)
                    continue
                for _ in range(devices[host]):
                    self._ask(shares[host], own, over, meet, turn == 0)
                    for _ in range(threads - 1):
                        self._ask(shares[host], beside, over, meet, turn == 0)

        begin(0)

    def _ask(
        self, share: Share, left: int, then: Callable[[], None], meet: int = 0, cold: bool = False
    ) -> None:  # fmt: skip
        self._turns += 1
        share.ask((0, self._turns), self._begin, share, left, then, meet, cold)

    def _begin(self, share: Share, left: int, then: Callable[[], None], meet: int, cold: bool) -> None:
        if meet and (cold or share.pushed_out()):
            left += meet
        now = min(SLICE, left)
        self._clock.at(self._clock.now + now, self._worked, share, left - now, then)

    def _worked(self, share: Share, left: int, then: Callable[[], None]) -> None:
        share.give_back(self._clock.now)
        if left:
            self._ask(share, left, then)
        else:
            then()


def begun(number: int, turn: int, many: int) -> int:
    """How many of `number` things begin in this turn, when they are spread evenly over `many`; the first in turn
    0."""
    return min(1, number) if turn == 0 else turn * number // many - (turn - 1) * number // many


def part(whole: int, turn: int, many: int) -> int:
    """The share of this turn when `whole` is split as evenly as possible over `many` turns."""
    return whole * (turn + 1) // many - whole * turn // many

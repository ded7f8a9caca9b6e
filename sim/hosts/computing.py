"""Devices that compute on their hosts' cores, as a CPU's do: a share of them, in slices, beside the hosts' own work.

    fabric --run(devices by host, what it takes)--> a core a thread, slice after slice --> all of them are through

Of the threads of a gang on one device one is busy all the while, the others for part of it. A slice is short, because
the operating system gives a core to a thread that wakes up before one that computes on. A collective goes in rounds:
nobody begins one before all have ended theirs. What it takes on the links is waiting, and needs no core; but each host
needs one in each round, so where others have them, it waits as often. Who comes to a collective from something else, or
finds that others have had its core since, pays `meet`. Neighbours: `device_queues`, whose queues these are; `cores`;
`kernels`, which say what is to be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ..hardware import Collective, Kernel
from .cores import DEVICE, Cores, Share

if TYPE_CHECKING:
    from ..engine import Clock
    from .processes import Process

SLICE = 100_000  # nanoseconds
ROUNDS = 256  # of a gang; of one that has more, several are taken as one


class Takes(NamedTuple):
    """A gang, in nanoseconds: what each device computes, and what it waits for links. cores: that each device keeps
    busy while it computes. rounds: in which it computes and waits. meets: collectives, of which these are. inline: in
    the threads that enqueue it."""

    own: int
    links: int
    cores: float = 1.0
    rounds: int = 0
    meets: int = 0
    inline: bool = False


def rounds(kernel: Kernel, hosts: int) -> int:
    """In which so many hosts hear of each other."""
    return sum(one.count * _rounds_of(one, hosts) for one in kernel.collectives)


def _rounds_of(collective: Collective, hosts: int) -> int:
    doubling = (hosts - 1).bit_length()
    match collective.kind:
        case "all-reduce":
            return 2 * doubling
        case "permute":
            return min(1, doubling)
        case _:
            return doubling


class Computing:
    """`cores`: by host. `host_of`: the process of a host, which may be another tomorrow."""

    def __init__(
        self, clock: Clock, cores: dict[int, Cores], process_of: Callable[[int], Process], meet: int = 0
    ) -> None:  # fmt: skip
        self._clock, self._cores, self._process_of, self._meet = clock, cores, process_of, meet
        self._turns = 0

    def here(self, host: int) -> bool:
        return host in self._cores

    def run(self, devices: Mapping[int, int], takes: Takes, then: Callable[[], None]) -> None:
        """`then` is called when so many devices of each of these hosts have computed, and heard of each other."""
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
    """Of so many that begin in as many turns, as evenly as can be: in this one. The first begins in the first."""
    return min(1, number) if turn == 0 else turn * number // many - (turn - 1) * number // many


def part(whole: int, turn: int, many: int) -> int:
    """Of so many, that are as even as can be."""
    return whole * (turn + 1) // many - whole * turn // many

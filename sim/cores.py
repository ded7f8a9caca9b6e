"""Cores of a machine that has fewer of them than threads: who works has one, and whoever comes first gets the next.

    share = cores.share(process, ENQUEUE)             a thread of a process
    share.ask(order, begin, ...)                      `begin(...)` is called when it has a core
    share.give_back(at)                               ... which it keeps until then

A core is kept for one thing and all that comes of it; nobody is interrupted. Those who ask at the same nanosecond
are put in a canonical order, after all else of that nanosecond, so that both fidelities serve the same one first.
Machines on which nobody can wait have no `Cores` at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .clock import LATE, Clock
from .placing import HOST, Shared

if TYPE_CHECKING:
    from .hardware import Setup
    from .processes import Process

LATER = LATE + 1  # threads decide LATE what they take; who gets a core is decided when all have
Order = tuple[int, int]

# Threads of a process, in the order in which they are served at the same nanosecond.
READ, PASS_ON, ENQUEUE, COMPLETE, CONTENTS, REPORTS, PREPARE, WRITE, CALL = range(9)


class Ask:
    """`key`: its place among those of the same nanosecond."""

    __slots__ = ("args", "begin", "key", "owner")

    def __init__(self, key: tuple[Any, ...], owner: Process, begin: Callable[..., None], args: Any) -> None:
        self.key, self.owner, self.begin, self.args = key, owner, begin, args


class Cores:
    def __init__(self, clock: Clock, number: int) -> None:
        self._clock = clock
        self.free = self.number = number
        self._count = 0
        self._new: list[Ask] = []  # of this nanosecond
        self._line: deque[Ask] = deque()
        self._called = False  # somebody will look who gets a core, at this nanosecond

    def share(self, owner: Process, thread: int) -> Share:
        return Share(self, owner, thread)

    def ask(self, key: tuple[Any, ...], owner: Process, begin: Callable[..., None], args: Any) -> None:
        self._count += 1
        self._new.append(Ask((*key, self._count), owner, begin, args))
        self._look()

    def give_back(self, at: int) -> None:
        if at > self._clock.now:
            self._clock.at(at, self._come_free)
        else:
            self._come_free()

    def _come_free(self) -> None:
        self.free += 1
        self._look()

    def _look(self) -> None:
        if not self._called:
            self._called = True
            self._clock.at(self._clock.now, self._hand_out, priority=LATER)

    def _hand_out(self) -> None:
        self._called = False
        self._new.sort(key=_key)
        self._line += self._new
        self._new = []
        while self.free and self._line:
            ask = self._line.popleft()
            if ask.owner.alive:  # the dead want nothing
                self.free -= 1
                ask.begin(*ask.args)


class Share:
    """One thread of a process, or a pool of them."""

    __slots__ = ("_cores", "_owner", "_thread")

    def __init__(self, cores: Cores, owner: Process, thread: int) -> None:
        self._cores, self._owner, self._thread = cores, owner, thread

    def ask(self, order: Order, begin: Callable[..., None], *args: Any) -> None:
        owner = self._owner
        self._cores.ask((rank(owner.name), self._thread, order), owner, begin, args)

    def give_back(self, at: int) -> None:
        self._cores.give_back(at)

    def work(self, order: Order, cost: int, then: Callable[..., object], *args: Any) -> None:
        """Of a pool: take a core for so long, and then call."""
        self.ask(order, self._begin, cost, then, args)

    def _begin(self, cost: int, then: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._cores._clock.at(self._cores._clock.now + cost, self._worked, then, args)

    def _worked(self, then: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._cores.give_back(self._cores._clock.now)
        then(*args)


class Machines:
    """Where processes are placed, as far as somebody may wait for a core there."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        self._setup, self._clock = setup, clock
        self._hosts: dict[int, Cores | None] = {}  # those on shared machines, and others on short ones
        self._clients: dict[str, Cores | None] = {}
        self._other_clients: Cores | None = None
        self.controller: Cores | None = None
        self.islands: dict[int, None] = {}  # where hosts may wait: they are simulated one by one
        for shared in setup.shared:
            self._place(shared)
        for island, machine in zip(setup.cluster.islands, setup.machines, strict=True):
            hosts = range(island.base_host, island.base_host + island.hosts)
            if machine.cores < HOST and not all(host in self._hosts for host in hosts):
                self.islands[island.index] = None

    def _place(self, shared: Shared) -> None:
        cores = Cores(self._clock, shared.cores) if shared.short else None
        self._hosts |= dict.fromkeys(shared.hosts, cores)
        self._clients |= dict.fromkeys(shared.clients, cores)
        if shared.controller:
            self.controller = cores
        if shared.other_clients:
            self._other_clients = cores
        if cores is not None:
            cluster = self._setup.cluster
            self.islands |= {cluster.island_of_host(host).index: None for host in shared.hosts}

    def of_host(self, host: int) -> Cores | None:
        if host not in self._hosts:
            machine = self._setup.machines[self._setup.cluster.island_of_host(host).index]
            short = machine.cores < HOST
            self._hosts[host] = Cores(self._clock, machine.cores) if short else None
        return self._hosts[host]

    def of_client(self, name: str) -> Cores | None:
        return self._clients.get(name, self._other_clients)


def rank(name: int) -> int:
    """Of those who come at the same nanosecond: hosts first, in their order; then controller and clients, in theirs."""
    return name if name >= 0 else (1 << 40) - name


def _key(ask: Ask) -> tuple[Any, ...]:
    return ask.key

"""The machine of each process, for processes whose threads may have to wait for a core.

    machines = SharedMachines(sim, setup)
    machines.share(process)               the thread that reads, or None: it never waits for a core
    machines.host(host, machine)          a host's process

Neighbours: `cores` hands out the cores of one machine; `hosts.context` says what the simulation's processes ask for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from core.host import Host
from core.protocol import is_client

from ..hardware import HOST, Setup, Shared
from ..hosts import HostProcess, Process, SimClient
from .computing import Computing
from .cores import CALL, READ, THREADS, Cores, CoreStalls, Share
from .crowded_host import CrowdedHost, ThreadTurn
from .message_batching import Wires

if TYPE_CHECKING:
    from ..hosts import Context


class SharedMachines:
    def __init__(self, sim: Context, setup: Setup) -> None:
        profile = sim.profile
        self._sim, self._setup, self._clock = sim, setup, sim.clock
        self._stalls = CoreStalls(profile.stall_every, profile.stall, sim.seed) if profile.stall_every else None
        self.batches = any(shared.python for shared in setup.shared)  # whether any messages are batched
        # hosts on shared machines, and other hosts whose machines have too few cores
        self._hosts: dict[int, Cores | None] = {}
        self._clients: dict[str, Cores | None] = {}
        self._names: dict[int, str] = {}  # names of clients, by their processes
        self._computing: dict[int, Cores] = {}  # by host: the cores on which its devices compute
        self._other_clients: Cores | None = None
        self.controller: Cores | None = None
        # islands with a host that may wait: they are simulated host by host
        self.islands: dict[int, None] = {}
        for shared in setup.shared:
            self._place(shared)
        for island, machine in zip(setup.cluster.islands, setup.machines, strict=True):
            hosts = range(island.base_host, island.base_host + island.hosts)
            if machine.cores < HOST and not all(host in self._hosts for host in hosts):
                self.islands[island.index] = None
        self.wires = Wires(sim, self)
        self.computing: Computing | None = None  # None: no devices compute on their hosts' cores
        if self._computing:
            self.computing = Computing(self._clock, self._computing, sim.process)

    def _place(self, shared: Shared) -> None:
        whose = shared.process_of if shared.python else None
        cores = None
        if shared.short:
            cores = Cores(self._clock, shared.cores, whose, self._stalls)
        self._hosts |= dict.fromkeys(shared.hosts, cores)
        self._clients |= dict.fromkeys(shared.clients, cores)
        if shared.controller:
            self.controller = cores
        if shared.other_clients:
            self._other_clients = cores
        if cores is not None and shared.devices:
            self._computing |= dict.fromkeys(shared.hosts, cores)
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

    def named(self, client: int, name: str) -> None:
        """Records the name of a client's process."""
        self._names[client] = name

    def of_process(self, name: int) -> Cores | None:
        if name >= 0:
            return self.of_host(name)
        return self.of_client(self._names[name]) if is_client(name) else self.controller

    def is_python(self, name: int) -> bool:
        """Whether its threads work one at a time, and its messages are batched."""
        if not self.batches:
            return False
        cores = self.of_process(name)
        return cores is not None and cores.process_of is not None

    # --- what processes ask for ---------------------------------------------------------------------------------

    def host(self, host: int, machine: Host) -> HostProcess:
        cores = self.of_host(host)
        if cores is None:
            return HostProcess(self._sim, host, machine)
        return CrowdedHost(self._sim, host, machine, cores, self)

    def computes(self, host: int) -> bool:
        """Whether its devices compute on its cores."""
        return host in self._computing

    def share(self, owner: Process) -> Share | None:
        cores = self.of_process(owner.name)
        return None if cores is None else cores.share(owner, READ)

    def turn(self, client: SimClient) -> ThreadTurn | None:
        cores = self.of_process(client.name)
        if cores is None or not self._sim.profile.client_call:
            return None
        return ThreadTurn(client, cores.share(client, CALL))

    def carries(self, one: int, other: int) -> bool:
        """Whether messages between these two are batched."""
        return self.is_python(one) and self.is_python(other)

    def put(self, owner: Process, to: int, message: object, at: int) -> None:
        """Sends `message` in a batch at time `at`."""
        self.wires.put(owner, to, message, at)

    def spent(self) -> Counter[tuple[int, str]]:
        """Nanoseconds of core time so far, by process and thread, on all machines where threads may wait."""
        every = [self.controller, self._other_clients, *self._clients.values(), *self._hosts.values()]
        found: Counter[tuple[int, str]] = Counter()
        for cores in dict.fromkeys(cores for cores in every if cores is not None):
            for (process, thread), some in cores.spent.items():
                found[process, THREADS[thread]] += some
        return found

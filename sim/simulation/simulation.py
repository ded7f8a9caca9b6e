"""The simulation: core's machines on a modelled network, with modelled hosts and devices, driven by SimPy.

    sim = Simulation(load("A"), policy=named("stride"), profile=profile("paper"))
    client = sim.client("a", weight=2)
    run = client.call(lambda c, now: c.submit(...))
    sim.run(until=lambda: ...)
    sim.trace                                   # what happened; sim.env: add SimPy processes of your own

No scheduling, ordering or placement is decided here: core's machines decide, and this module says how long things
take. The same arguments give the same trace, to the byte.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Sized
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import simpy
from simpy.core import EmptySchedule

from core.client import Limits
from core.controller import Config, Controller
from core.fanout import Tree, fanout_for, tree
from core.host import Host
from core.model import Cluster, Gang, Layout, Plan, Spans, shard_bytes, spans, virtual_index
from core.protocol import Chunk, is_client, peers
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Trace
from core.schedule.policy import Fifo, Policy
from core.transfer import Transfer

from ..cohort import CohortIsland, HostContents, SharedExecutor, StreamNames, one_root
from ..engine import Noise, Order, SimClock, Stuck, StuckWatch
from ..engine import jitter as chance
from ..hardware import GangWork, Kernel, Profile, Setup, kernel_time, road_times
from ..hosts import (
    CARRIED,
    ControllerProcess,
    Fabric,
    HostProcess,
    RareTimes,
    SimClient,
    SimWorlds,
    Takes,
    nothing_said,
)
from ..network import (
    CARRIED_BYTES,
    CONTROLLER,
    TALK,
    BulkNetwork,
    MessageSizes,
    Network,
    Ports,
    Roads,
    Together,
    even_rows,
    moves_nothing,
    number_of,
    ways_of,
)
from ..shared_cores import SharedMachines
from .boot import boot
from .fault_injection import FaultInjection
from .faults import Fault, divided, known_after
from .regrouping import Regrouping
from .takeover import take_over

MIB = 1 << 20
SMALL = 1 << 16  # contents of so many bytes, or a sixteenth of a chunk, pass between the packets of others
STRAGGLERS = 1 << 48  # a source of randomness


class Simulation:
    def __init__(
        self, setup: Setup, *, policy: Callable[[], Policy] = Fifo, profile: Profile,
        fidelity: Literal["exact", "cohort"] = "cohort", seed: int = 0, noise: Noise | None = None,
        config: Config | None = None, times: RareTimes | None = None, faults: Iterable[Fault] = (),
        chunk: int = 16 * MIB, pool: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.setup, self.profile, self.fidelity, self.seed = setup, profile, fidelity, seed
        self.noise = noise or Noise()
        self.times = times or RareTimes(pcie_latency=0 if profile.instant else setup.chips[0].pcie_latency)
        self.chunk, self.pool = chunk, pool
        self.cluster: Cluster = setup.cluster
        self.clock = SimClock()
        self.trace, self._quiet = Trace(), StuckWatch(self.clock)
        self.told: list[tuple[int, str]] = []  # what machines tell their operators, and when
        self.replaced: list[tuple[int, e.PolicyReplaced]] = []
        self.kernels: dict[str, Kernel] = {}
        self.sizes: Callable[[Plan, Gang, int], tuple[int, ...]] = bounds_of
        self.about_code: Callable[[str], bytes] = nothing_said  # by a computation's key; see `CodeReady`
        self.rows_of, self.hosts_of = even_rows, self.cluster
        self.weights = MessageSizes()
        self.clients: list[SimClient] = []
        self.last_seen = self.longest_gang = 0  # when no mere timer happened; of priced gangs
        self.met: dict[tuple[int, int], None] = {}  # clients and hosts that have a connection
        self._waiting: dict[tuple[int, int], list[Any]] = {}
        self._prices: dict[tuple[int, int, int], tuple[Takes, int]] = {}
        self.works, self.worked = list[GangWork](), (array("q"), array("i"))  # what gangs do; by seq, which of that
        self._numbered, self._starts = dict[int, int](), dict[int, int]()
        dcn = setup.dcn
        latency, bandwidth = (0, 0) if profile.instant else (dcn.latency, dcn.bandwidth)
        byte_ps, jitter = int(1e12 / bandwidth) if bandwidth else 0, self.noise.latency + dcn.jitter
        self.network = Network(self.clock, latency, byte_ps, jitter, seed, self._arrive)
        small = min(SMALL, chunk // 16)
        self.contents = BulkNetwork(self.clock, self.cluster, self._roads(), self._arrive, self.trace, small)
        self.machines = SharedMachines(self, setup)
        self.fabric = Fabric(
            self.clock, self.cluster, self.trace, self.prices, self.longer, self._sizes, self.tell_host,
            self.contents.roads.collectives.wait, self.machines.computing,
        )  # fmt: skip
        self.trouble = FaultInjection(self)
        self.replaying = False  # what hosts did before now is played again: nobody else hears of it
        self.worlds = SimWorlds(
            self.clock, self.cluster, self.times.join, lambda host, event: self.lone_hosts[host].tell(event)
        )
        self.config = config or Config(fanout=fanout_of(profile, setup.cluster))
        faults = list(faults)
        known, *self.grown = known_after(faults, self.cluster)  # the hardware of all of it is there from the start
        exact = dict.fromkeys(range(len(self.cluster.islands))) if fidelity == "exact" else self.machines.islands.copy()
        differ = divided(faults, self.cluster)
        self._exact = exact  # islands whose hosts are simulated one by one
        self.controller: Controller = Controller(known, policy, self.config, trace=self.trace, shape=self._tree_of)
        self.controller.state.backlog = sys.maxsize  # its heartbeats are rarer than real ones
        self.controller_process = ControllerProcess(self, self.controller)
        self.islands: dict[int, CohortIsland] = {}  # islands that are simulated as cohorts
        always = exact.copy()
        moves = HostContents(self, self.islands, lambda island: island not in always)
        self._regrouping = Regrouping(self, moves)
        self.lone_hosts: dict[int, HostProcess] = {}  # hosts of all other islands
        for island in known.islands:
            if island.index not in exact:
                self.islands[island.index] = CohortIsland(self, island, moves, differ.get(island.index))
                continue
            for host in range(island.base_host, island.base_host + island.hosts):
                self.lone_hosts[host] = self.new_host(host)
        self._await_islands(len(known.islands), always)
        self._set_stragglers()
        boot(self)
        for cohort in self.islands.values():
            self.clock.at(self.times.beat, self._beat, cohort)
        for fault in faults:
            self.clock.at(fault.at, self.trouble.befall, fault)

    def _await_islands(self, first: int, always: dict[int, None]) -> None:
        """The hosts of islands that come later begin one by one, and may be a cohort then."""
        for island in range(first, len(self.cluster.islands)):
            self._exact[island] = None
            if island not in always:
                self._regrouping.apart(island, StreamNames())

    def _tree_of(self, members: Spans, fanout: int, apart: Spans) -> Tree:
        """The tree in which the controller sees an island: a cohort speaks as one host, and has its tree inside."""
        alike = members and self.island_of(members[0][0]) not in self._exact
        return (one_root if alike else tree)(members, fanout, apart)

    def _beat(self, island: CohortIsland) -> None:
        if self.islands.get(island.island.index) is not island:
            return
        if island.beat():
            self.clock.at(self.now + self.times.beat, self._beat, island)

    def beat_again(self, island: CohortIsland) -> None:
        """It has something to say in its heartbeats."""
        island.beats = True
        self.clock.at((self.now // self.times.beat + 1) * self.times.beat, self._beat, island)

    def _roads(self) -> Roads:
        dcn, pcie = self.setup.dcn, self.setup.chips[0].pcie_latency
        ways, ports = ways_of(self.setup), Ports(self.clock)
        return Roads(self.cluster, ways, dcn.latency, pcie, dcn.bandwidth, dcn.oversubscription, ports)

    def _set_stragglers(self) -> None:
        if self.noise.stragglers:
            source = chance.key(self.seed, STRAGGLERS)
            for host in range(self.cluster.hosts):
                if chance.fraction(source, host) < self.noise.stragglers:
                    self.trouble.slow(host, self.noise.straggler_factor)

    def new_host(
        self, host: int, executor: SharedExecutor | None = None, transfer: Transfer | None = None
    ) -> HostProcess:
        start = self._starts[host] = self._starts.get(host, 0) + 1
        executor = executor or SharedExecutor(host, self.hosts_of, incarnation=start)
        machine = Host(
            host, self.hosts_of, beat=self.times.beat, pool=self.pool, chunk=self.chunk, executor=executor,
            transfer=transfer,
        )  # fmt: skip
        return self.machines.host(host, machine)

    # --- time -----------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        @property
        def env(self) -> simpy.Environment:
            """SimPy's environment: users may add processes to it."""

        @property
        def now(self) -> int: ...
    else:  # in C, since these are asked for some 20 times for each gang
        env, now = property(attrgetter("clock")), property(attrgetter("clock.now"))

    @property
    def regular(self) -> bool:
        """Whether no message takes a random time, and no process waits for a core."""
        return not self.network.jitter and not self.setup.shared

    def run(self, until: int | Callable[[], object] | Sized) -> None:
        """Runs to a time, or until a condition is true, or a collection is not empty; raises `Stuck` if that cannot
        happen any more."""
        clock = self.clock
        if isinstance(until, int):
            clock.run_to(until)
            return
        try:
            if callable(until):
                while not until():
                    self._see_whether_stuck()
                    clock.step()
            else:
                while not until:
                    clock.steps(until, self._quiet.until(self.last_seen))
                    if not until:
                        self._see_whether_stuck()
        except EmptySchedule:
            raise Stuck(self.why_stuck()) from None

    def _see_whether_stuck(self) -> None:
        if self._quiet.is_stuck(self.last_seen):
            raise Stuck(self.why_stuck())

    def why_stuck(self) -> str:
        waits = "; ".join(list(dict.fromkeys(text for _, text in self.told[-30:]))[-3:])
        return f"nothing more can happen at {self.now / 1e9:.6f} s" + (f"; last heard: {waits}" if waits else "")

    # --- processes ------------------------------------------------------------------------------------------

    def client(self, name: str, weight: int = 1, priority: int = 0, limits: Limits | None = None) -> SimClient:
        client = SimClient(self, len(self.clients), name, weight, priority, limits)
        self.clients.append(client)
        client.serve(e.Connected(CONTROLLER), self.now)
        return client

    def process(self, name: int) -> Any:
        """The `Process` with this name, or for a host of a cohort, its `Member`."""
        if name >= 0:
            return self.lone_hosts.get(name) or self.islands[self.island_of(name)].member(name)
        return self.controller_process if name == CONTROLLER else self.clients[-name - 2]

    def take_over(self, island: int) -> None:
        """From now on, simulates the hosts of an island one by one, that were a cohort."""
        self._exact[island] = None
        cohort = self.islands.pop(island)
        take_over(self, cohort)
        self._regrouping.apart(island, cohort.names)

    def regroups(self, message: m.Ordered) -> bool:
        """Whether an island whose hosts are simulated one by one becomes a cohort, before it is sent this order."""
        return self._regrouping.ordered(message)

    def together(self, cohort: CohortIsland, hosts: dict[int, HostProcess]) -> None:
        """From now on, simulates these hosts, which were processes, as this cohort."""
        index, members = cohort.island.index, cohort.parts.everyone
        for host in hosts:
            del self.lone_hosts[host]
        self.clock.drop(lambda call, args: _is_of(getattr(call, "__self__", None), args, hosts))
        self.fabric.leave_to_others(members)
        self.islands[index] = cohort
        del self._exact[index]
        self.controller.reshape(index)
        self.beat_again(cohort)

    def island_of(self, host: int) -> int:
        return self.cluster.island_of_host(host).index

    def connection(self, name: int) -> int:
        """The number by which the controller knows a process; clients are numbered after all hosts."""
        return name if name >= CONTROLLER else self.cluster.hosts - name - 2

    def process_of(self, connection: int) -> int:
        hosts = self.cluster.hosts
        return connection if connection < hosts else hosts - connection - 2

    def numbered(self, client: int, number: int) -> None:
        """Records the number that the controller gave to a client; hosts know the client by it."""
        self._numbered[number] = client

    def to_hosts(self, name: int) -> int:
        """The number by which hosts know a process."""
        return peers.client(self.clients[-name - 2].number) if is_client(name) else name

    def from_hosts(self, peer: int) -> int:
        """The process that hosts know by this number."""
        return self._numbered[-1 - peer] if is_client(peer) else peer

    def _arrive(self, receiver: int, sender: int, number: int, message: Any) -> None:
        if type(message) not in TALK or not moves_nothing(message):
            self.last_seen = self.clock.now
        if isinstance(message, Together):
            self.contents.come(message.messages)
        if receiver == CONTROLLER:
            process: Any = self.controller_process
        elif receiver < 0:
            process = self.clients[-receiver - 2]
        else:
            process = self.process(receiver)
            if is_client(sender) and process.alive:
                self.meet(sender, receiver)
        if process.alive:
            process.come(sender, number, message)

    def meet(self, client: int, host: int) -> None:
        """Takes in a client's message to a host. With the first one, the connection exists, and messages that waited
        for it are sent."""
        if (client, host) in self.met:
            return
        self.met[client, host] = None
        for message in self._waiting.pop((client, host), []):
            self.send_contents(host, client, message, self.now)

    def part(self, name: int) -> None:
        """Takes in that a process has ended: it has no connections, and what waited for one is lost with it."""
        for pairs in (self.met, self._waiting):
            for pair in [pair for pair in pairs if name in pair]:
                del pairs[pair]

    def tell_host(self, host: int, event: e.Event) -> None:
        """Tells a host an event of its devices, after PCIe; a process that replaces the host meanwhile is not
        told."""
        self.last_seen = self.now
        self.clock.at(self.now + self.times.pcie_latency, self.lone_hosts[host].tell, event)

    def tell(self, text: str) -> None:
        self.told.append((self.now, text))

    # --- how long things take -------------------------------------------------------------------------------

    def _sizes(self, plan: Plan, gang: Gang, seq: int) -> tuple[int, ...]:
        return self.sizes(plan, gang, seq)

    def writing(self, message: Any) -> int:
        """Host time to write a message to one peer."""
        return self.profile.writing(self.weights.of(message))

    def taking(self, message: Any) -> int:
        """Host time to receive a message."""
        return self.profile.taking(self.weights.of(message))

    def taking_wire(self, wire: Together) -> int:
        """Host time to receive a batch of messages."""
        profile = self.profile
        cost = len(wire.messages) * profile.receive
        cost += wire.nbytes * profile.receive_byte_ps // 1000
        return cost + wire.contents * profile.transfer_byte_ps // 1000

    def prices(self, plan: Plan, gang: Gang) -> Takes:
        return self._priced(plan, gang)[0]

    def gang_ordered(self, plan: Plan, gang: Gang, seq: int) -> None:
        """Notes what a gang does, for those who look into it later."""
        seqs, works = self.worked
        seqs.append(seq)
        works.append(self._priced(plan, gang)[1])

    def _priced(self, plan: Plan, gang: Gang) -> tuple[Takes, int]:
        """(how long it takes, its row of `works`)."""
        key = (plan.id, gang.place.island, gang.computation)
        found = self._prices.get(key)
        if found is None:
            takes = self._price(plan, gang)
            found = self._prices[key] = takes, len(self.works) - 1
            longest = (takes.own + takes.links) * gang.steps * (1 + self.noise.compute)
            self.longest_gang = max(self.longest_gang, int(longest))
        return found

    def longer(self, host: int, seq: int) -> float:
        """The factor by which the devices of a host take longer for a gang."""
        most = self.noise.compute
        return 1.0 + most * chance.fraction(chance.key(self.seed, chance.COMPUTE + host), seq) if most else 1.0

    def _price(self, plan: Plan, gang: Gang) -> Takes:
        kernel = self.kernels.get(plan.codes[gang.computation].key)
        if kernel is None:
            kernel = Kernel(gang.name, gang.cost // gang.steps)
        island = self.cluster.islands[gang.place.island]
        chip = self.setup.chips[island.index]
        kernel = kernel.on(island.kind) if kernel.durations else kernel
        links = kernel_time(kernel, gang.place, island, chip) - kernel.duration
        self.works.append(GangWork(kernel, gang.place, gang.steps))
        roads = road_times(kernel, gang.place, island, chip, self.contents.small)
        hosts = spans.count(self.cluster.hosts_of(gang.place)) if kernel.collectives else 1
        return Takes(kernel.duration, links, kernel.inline, kernel.cores, roads, (hosts - 1).bit_length())

    def by_host(self, sender: int, receiver: int) -> bool:
        """Whether contents between these processes go through the hosts' CPUs, and not over a torus."""
        return sender != receiver and not self.contents.roads.by_torus(sender, receiver)

    def send_contents(self, sender: int, receiver: int, message: Any, at: int) -> None:
        """Sends a message of the data plane. A pool of threads writes it, which costs time and holds up nothing
        else."""
        if self.replaying:
            return
        if at > self.now:
            self.clock.at(at, self.send_contents, sender, receiver, message, at)
        elif is_client(receiver) and (receiver, sender) not in self.met:
            # A host cannot connect to a client: it waits until the client has connected.
            self._waiting.setdefault((receiver, sender), []).append(message)
        elif sender == receiver and not isinstance(message, CARRIED):
            self._arrive(receiver, sender, self.network.count(sender, receiver), message)
        elif self._on_wire(sender, receiver):
            self.machines.put(self.process(sender), receiver, message, at)
        elif isinstance(message, CARRIED):
            nbytes = getattr(message, "nbytes", CARRIED_BYTES)
            dear = sender >= 0 and self.by_host(sender, receiver)
            send = partial(self.contents.send, sender, receiver, message, nbytes)
            order = (receiver, number_of(message))
            self._write(sender, order, self.profile.chunk(nbytes) if dear else 0, send, in_order=True)
        else:
            order = (receiver, getattr(message, "transfer", 0))
            self._write(
                sender, order, self.profile.send if sender >= 0 else 0,
                lambda cost: self.network.send(sender, receiver, message, 0, self.now + cost),
            )  # fmt: skip

    def _on_wire(self, sender: int, receiver: int) -> bool:
        """Whether a message of the data plane goes in a batch with all other messages to this peer."""
        return (
            sender != receiver
            and not self.contents.roads.by_torus(sender, receiver)
            and self.machines.carries(sender, receiver)
        )

    def _write(self, sender: int, order: Order, cost: int, send: Callable[[int], None], in_order: bool = False) -> None:
        host = self.lone_hosts.get(sender)
        if host is None:
            send(cost)
        else:
            host.write_contents(order, cost, send, in_order)

    def taking_contents(self, message: Any) -> int:
        """Host time to receive a message of the data plane."""
        sender, receiver = message.sender, message.receiver
        if sender == receiver:
            return 0
        if isinstance(message, Chunk):
            dear = min(sender, receiver) < 0 or self.by_host(sender, receiver)
            return self.profile.chunk(message.nbytes) if dear else 0
        return self.profile.receive

    def rows(self, host: int, effect: e.CountRows) -> e.RowsCounted:
        return e.RowsCounted(effect.transfer, self.rows_of(host, effect.source, effect.target, self.hosts_of))

    def copy_time(self, host: int, copy: e.SpillBuffer | e.RestoreBuffer, layout: Layout | None) -> int:
        """Time to copy a host's shards between its devices and its memory, or its disk: each device has a link of its
        own, and a host has one disk."""
        if layout is None:
            return 0
        island, nbytes = self.cluster.island_of_host(host).index, shard_bytes(layout)
        took = nbytes / self.setup.chips[island].pcie_bandwidth
        if copy.to_disk if isinstance(copy, e.SpillBuffer) else copy.from_disk:
            shards = sum(virtual_index(layout.place, device) >= 0 for device in self.cluster.devices_of(host))
            took += nbytes * shards / self.setup.machines[island].disk_bandwidth
        return int(took * 1e9)


def _is_of(owner: object, args: tuple[Any, ...], hosts: dict[int, HostProcess]) -> bool:
    """Whether a call that is to come is a timer of one of these processes, or a message from one or to one."""
    if isinstance(owner, Network):
        return args[0].sender in hosts or args[0].receiver in hosts
    return isinstance(owner, HostProcess) and hosts.get(owner.name) is owner


def bounds_of(plan: Plan, gang: Gang, seq: int) -> tuple[int, ...]:
    """The sizes of an irregular gang for which none were given: as many rows as its outputs can hold."""
    layouts = [plan.slots[slot].layout for slot in gang.outputs]
    return tuple([_leading(layout) for layout in layouts])


def _leading(layout: Layout) -> int:
    """The number of rows of the largest shard."""
    if not layout.shape:
        return 0
    parts = layout.sharding.parts(layout.mesh)
    return -(-layout.shape[0] // parts[0]) if parts else layout.shape[0]


def fanout_of(profile: Profile, cluster: Cluster) -> int:
    """How many hosts the controller writes to with this profile: the width of its trees of hosts."""
    wanted, largest = profile.fanout, max(island.hosts for island in cluster.islands)
    if isinstance(wanted, int):
        return wanted
    return largest if wanted == "flat" else fanout_for(largest)

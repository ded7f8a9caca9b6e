"""All that the controller knows, and the rooms that decide on it. Rooms find one another here, and nowhere else.

Nothing is decided in this file. The rooms and their one sentence each are listed in `core/controller/__init__.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from ..compile import Lowerings, cut
from ..invariants import Observation
from ..memory import Buffers, Footprints, HostMemory, Ledger, Spill
from ..model import Atoms, Cluster, Gang, Place, Plan, Spans, spans
from ..protocol import Blame, Compiled, ForgetStep, PolicyReplaced
from ..record import OrderHash, Trace
from ..schedule import Scheduler, Window
from ..schedule.policy import Policy
from ..slices import Resources
from .admission import Admission
from .clients import Clients
from .codes import Codes
from .config import Config
from .contents import Contents
from .dispatch import Dispatch
from .failures import Failures
from .flights import Flights
from .history import History
from .holdings import Holdings
from .islands import IslandBook, Islands
from .outbox import Outbox
from .records import Run, Session, Shape
from .recovery import Recovery
from .runs import Runs
from .stalls import Stalls
from .watch import Watchdog

IDS = 1 << 48  # ids of one incarnation of the controller; far more than it will ever give out


class Books:
    def __init__(
        self, cluster: Cluster, policy: Callable[[], Policy], config: Config, *, incarnation: int,
        observe: Callable[[Observation], None] | None, trace: Trace | None,
    ) -> None:  # fmt: skip
        self.cluster, self.config, self.incarnation = cluster, config, incarnation
        self.base = incarnation * IDS  # ids of another incarnation are never mistaken for one of ours
        self.watched = observe is not None  # if not, what would be observed need not be worded
        self.observe = observe or _ignore
        self.now = 0
        # what is counted
        self.atoms = Atoms()
        self.buffers = Buffers()
        self.ledger = Ledger(self.atoms, self._device_memory)
        self.footprints = Footprints(self.atoms)
        self.spill = Spill(
            self.atoms, self.ledger, self.buffers, HostMemory(self._hosts_of_devices, self._host_memory)
        )
        self.resources = Resources(cluster)
        self.lowerings = Lowerings(first=incarnation * IDS)
        self.order = OrderHash()
        self.watch = Watchdog(config.bounds)
        # who and what there is
        self.sessions: dict[int, Session] = {}
        self.by_peer: dict[int, Session] = {}
        self.host_peers: dict[int, int] = {}  # connection -> host
        self.runs: dict[int, Run] = {}
        self.shapes: dict[int, Shape] = {}
        self.islands = [self._island(index, policy) for index in range(len(cluster.islands))]
        # what is to be done before the turn ends
        self.outbox = Outbox()
        self.wake: list[Run] = []  # what they waited for has come
        self.settling: deque[tuple[int, Blame | None]] = deque()  # buffers whose contents are final
        self.plan_ready: list[int] = []
        self.readers: dict[int, list[tuple[Run, int]]] = {}  # buffer -> steps under way that read it
        self.map_changed = False  # slices lie elsewhere now: plans that have not started are lowered again
        self.dismissed: dict[int, int] = {}  # connections of hosts that were told to go, until they have
        self._seq = 0
        self._buffers = 1
        self._stale_plans: dict[int, None] = {}
        self.deliver: Callable[[int, msgspec.Struct, int], None]  # a client's message, as if it had come now
        # the rooms
        self.history = History(self, trace)
        self.codes = Codes(self.outbox)
        self.flights = Flights(self)
        self.stalls = Stalls(self)
        self.holdings = Holdings(self)
        self.dispatch = Dispatch(self)
        self.admission = Admission(self)
        self.runs_room = Runs(self)
        self.contents = Contents(self)
        self.islands_room = Islands(self)
        self.failures = Failures(self)
        self.recovery = Recovery(self)
        self.clients = Clients(self)

    # --- numbers -------------------------------------------------------------------------------------------------

    def next_seq(self) -> int:
        self._seq += 1
        return self.base + self._seq

    def next_buffers(self, count: int) -> int:
        """The first of so many new ids."""
        first = self.base + self._buffers
        self._buffers += count
        return first

    def settled_below(self) -> int:
        """Every seq below it is over on all its hosts."""
        oldest = self.flights.oldest_seq()
        return self.base + self._seq + 1 if oldest is None else oldest

    # --- the machines' parts -------------------------------------------------------------------------------------

    def _island(self, index: int, policy: Callable[[], Policy]) -> IslandBook:
        config = self.config
        window = Window(config.window, config.window_span, config.window_most)
        scheduler = Scheduler(self.atoms, policy(), window, config.max_passes, config.early)
        return IslandBook(self.cluster.islands[index], scheduler, (self.incarnation << 20) - 1)

    def scheduler(self, island: int) -> Scheduler:
        return self.islands[island].scheduler

    def island_of_host(self, host: int) -> IslandBook:
        return self.islands[self.cluster.island_of_host(host).index]

    def hosts_of(self, place: Place) -> Spans:
        return self.cluster.hosts_of(place)

    def _device_memory(self, devices: Spans) -> int:
        return min(self.cluster.island_of_device(low).memory for low, _ in devices)

    def _host_memory(self, hosts: Spans) -> int:
        return min(self.cluster.island_of_host(low).host_memory for low, _ in hosts)

    def _hosts_of_devices(self, devices: Spans) -> Iterable[tuple[Spans, int]]:
        """(hosts, how many of the devices each of them has)."""
        count: dict[int, int] = {}
        for low, high in devices:
            for device in range(low, high):
                host = self.cluster.host_of(device)
                count[host] = count.get(host, 0) + 1
        groups: dict[int, list[int]] = {}
        for host, number in count.items():
            groups.setdefault(number, []).append(host)
        return [(spans.of(hosts), number) for number, hosts in groups.items()]

    # --- plans ---------------------------------------------------------------------------------------------------

    def shape_of(self, plan: Plan) -> Shape:
        shape = self.shapes.get(plan.id)
        if shape is None:
            places = [
                step.place if isinstance(step, Gang) else plan.slots[step.target].layout.place
                for step in plan.steps
            ]
            every = [*places, *(slot.layout.place for slot in plan.slots)]
            islands: dict[int, list[Spans]] = {}
            for place in dict.fromkeys(every):
                islands.setdefault(place.island, []).append(self.hosts_of(place))
            shape = self.shapes[plan.id] = Shape(
                plan,
                [self.atoms.intern(place) for place in places],
                [self.hosts_of(place) for place in places],
                {island: spans.union(*hosts) for island, hosts in islands.items()},
            )
        return shape

    def tell_plan(self, shape: Shape, island: int) -> None:
        """Hosts are told a plan once an epoch, before anything that names it."""
        book = self.islands[island]
        if shape.sent.get(island) != book.epoch:
            shape.sent[island] = book.epoch
            part = shape.parts.get(island)
            if part is None:
                part = shape.parts[island] = cut(shape.plan, island)
            self.outbox.plan(island, part, shape.island_hosts[island])

    def ask_for_code(self, shape: Shape) -> bool:
        """Have its code compiled wherever it is not, in this epoch. True: it is ready everywhere."""
        ready = True
        for island in shape.island_hosts:
            book = self.islands[island]
            if book.formed != book.epoch:
                ready = False  # asked once the epoch has formed
                continue
            self.tell_plan(shape, island)
            self.codes.request(shape, island, book.epoch)
        return ready and self.codes.ready(shape.plan.id)

    def code_ready(self, plan: int) -> bool:
        if not self.codes.ready(plan) or self.codes.blame(plan) is not None:
            return False
        for island in self.shapes[plan].island_hosts:
            if self.islands[island].formed != self.islands[island].epoch:
                return False
        return True

    def code_reported(self, report: Compiled) -> None:
        if self.codes.reported(report):
            self.plan_ready.append(report.plan)

    def forget_plans(self) -> None:
        """Plans for a device map, or a program, that is no more: forgotten when no run of theirs is left."""
        forgotten = self.lowerings.forgotten()
        if not forgotten and not self._stale_plans:
            return
        self._stale_plans.update(dict.fromkeys(forgotten))
        for plan in [p for p in self._stale_plans if p not in self.shapes or not self.shapes[p].users]:
            del self._stale_plans[plan]
            shape = self.shapes.pop(plan, None)
            self.codes.forget(plan)
            self.footprints.forget(plan)
            for island, hosts in shape.island_hosts.items() if shape else ():
                self.outbox.step(island, ForgetStep((), (plan,)), hosts)

    def tell_faults(self) -> None:
        """A policy that raised or picked nonsense has been replaced: say so, once."""
        for book in self.islands:
            if book.scheduler.faults:
                faults, book.scheduler.faults = book.scheduler.faults, []
                for policy, fault in faults:
                    self.outbox.effect(PolicyReplaced(book.island.name, policy, fault))

    # --- to look at ----------------------------------------------------------------------------------------------

    def client_text(self, number: int) -> str:
        session = self.sessions.get(number)
        return f"client {session.name!r}" if session else f"client {number}"

    def alive(self) -> int:
        return len(self.buffers)

    def audit(self) -> Iterable[tuple[str, int, int]]:
        """(what, as it is kept, counted anew)."""
        flights: dict[int, int] = {}
        for flight in self.flights.all():
            if flight.run is not None:
                flights[flight.run.id] = flights.get(flight.run.id, 0) + 1
        held: dict[int, int] = {}
        for run in self.runs.values():
            yield f"steps of run {run.id} in an order", run.open_steps, flights.get(run.id, 0)
            for buffer in (*run.held.values(), *run.own.values()):
                held[buffer] = held.get(buffer, 0) + 1
        for buffer, number in self.holdings.other_holds().items():
            held[buffer] = held.get(buffer, 0) + number
        for record in self.buffers:
            yield f"references of buffer {record.id}", record.holds, held.get(record.id, 0)


def _ignore(seen: Observation) -> None:
    """Nobody watches."""

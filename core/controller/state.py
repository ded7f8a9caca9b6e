"""The controller's state: typed tables of plain data. Nothing is decided here.

`State` has what all of the controller's modules look at: the peers, what runs, what is in each island's order, who
waits for what, and the turn's agenda. Each table is written by one module, which is named beside it. What only one
module needs is kept there.

The agenda is how a module tells one that stands above it what has happened. It enters the news and returns; the
controller hands it to the module concerned, before the turn ends. So calls go down only.
"""

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from ..fanout import Stream
from ..model import Cluster, Island, Place, Spans, all_hosts, spans
from ..protocol import Blame, Join
from ..schedule import Scheduler
from .broken_epochs import BrokenEpochs
from .config import Config
from .observations import BufferHeld, BufferLetGo, Observation
from .records import BufferName, ClientRecord, Histogram, InFlight, RunRecord, Waiter, WaitingView

IDS = 1 << 48  # ids of one incarnation of the controller; far more than it will ever give out
BACKLOG = 4096  # messages that some host of an island may not have seen: while there are more, no gangs enter
WAYS = 512  # sets of hosts whose connections are remembered

# What happens to an island: (phase, event) -> next phase. `membership` explains it.
PHASES: dict[tuple[str, str], str] = {
    ("forming", "complete"): "reforming",
    ("running", "lost"): "fencing",
    ("running", "path"): "fencing",
    ("running", "change"): "draining",
    ("fencing", "lost"): "fencing",
    ("fencing", "path"): "fencing",
    ("fencing", "seated"): "draining",
    ("draining", "lost"): "fencing",
    ("draining", "path"): "fencing",
    ("draining", "nothing changed"): "running",
    ("draining", "drained"): "reforming",
    ("reforming", "lost"): "reforming",
    ("reforming", "path"): "reforming",
    ("reforming", "seated"): "running",
    **{(phase, "empty"): "forming" for phase in ("running", "fencing", "draining", "reforming")},
}


class ControllerModule(msgspec.Struct, eq=False):
    """A module of the controller. Its fields without a default are what it calls: `modules` hands it those."""

    __repr__ = object.__repr__  # and not that of all that it calls


class IslandState:
    """One island as the controller knows it. Written by `membership`, but for `in_flight` (`in_flight`) and
    `gang_time` (`meters`)."""

    def __init__(self, island: Island, scheduler: Scheduler, epoch: int, changing: set[int]) -> None:
        self.island = island
        self._changing = changing
        self.scheduler = scheduler
        self.phase = "forming"
        self.epoch = epoch  # the first to form is the next
        self.formed = epoch - 1  # the last epoch that has formed: its code may be compiled, its gangs ordered
        self.tree_number = 0
        self.stream = Stream(island.index)
        self.in_flight: dict[int, InFlight] = {}  # by seq: what is in its order and not over
        self.members: Spans = spans.EMPTY
        self.peers: dict[int, int] = {}  # host -> its direct connection
        self.incarnations: dict[int, int] = {}
        self.dismissed: dict[int, int] = {}  # host -> its last incarnation that was given up
        self.coming: dict[int, Join] = {}  # joined, not yet members
        self.fresh: Spans = spans.EMPTY  # members since this epoch; they get work once it has formed
        self.leaving: dict[int, str] = {}
        # hosts whose relays did not reach them: they hang below the controller
        self.apart: Spans = spans.EMPTY
        self.abandon: list[int] = []  # gangs given up since the last fence
        self.dropped: list[int] = []
        self.stale_world = True  # members or devices have changed since the epoch formed
        self.world_epoch = -1  # the last epoch whose world is up
        self.broken = BrokenEpochs()
        self.gang_time = Histogram()  # for how long gangs had their devices
        self.roots: dict[int, Spans] = {}  # connection of a root -> the hosts below it
        self.ways: dict[Spans, tuple[int, ...]] = {}  # hosts: the connections by which they are told
        scheduler.paused = True

    def rewired(self) -> None:
        """Another tree, or other connections."""
        self.roots, self.ways = {}, {}

    def turn(self, happened: str) -> None:
        self.phase = PHASES[self.phase, happened]
        if self.phase == "running":
            self._changing.discard(self.island.index)
        else:
            self._changing.add(self.island.index)

    def ways_to(self, hosts: Spans) -> tuple[int, ...]:
        """The connections by which these hosts are told. A root that was dismissed meanwhile gets nothing; those below
        it are sent again what they miss, once they are seated."""
        ways = self.ways.get(hosts)
        if ways is None:
            ways = tuple(self.peers[root] for root in self.stream.targets(hosts) if root in self.peers)
            if not self.stream.forming:
                if len(self.ways) >= WAYS:
                    self.ways.clear()
                self.ways[hosts] = ways
        return ways


class State:
    def __init__(
        self, cluster: Cluster, config: Config, incarnation: int,
        observe: Callable[[Observation], None] | None, schedulers: Iterable[Scheduler], starts: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.config, self.incarnation = config, incarnation
        self.start = starts[-1] if starts else 0
        # this one, those that it follows, and 0: a peer that does not say
        self.starts = frozenset((0, *starts))
        self.base = incarnation * IDS  # ids of another incarnation are never mistaken for one of ours
        self.watched = observe is not None  # if not, what would be observed need not be worded
        self.observe = observe or _ignore
        self.now = 0
        self.backlog = BACKLOG
        # what there is
        self.sessions: dict[int, ClientRecord] = {}  # by number; `clients`
        self.by_peer: dict[int, ClientRecord] = {}  # by connection; `clients`
        self.host_peers: dict[int, int] = {}  # connection -> host; `membership`
        self.dismissed: dict[int, int] = {}  # connections of hosts that were told to go, until they have
        self.strangers: dict[int, int] = {}  # connections of hosts that belong to another state; `membership`
        self.runs: dict[int, RunRecord] = {}  # by id, until nothing of it is in flight; `runs`
        self.in_flight: dict[int, InFlight] = {}  # by seq, so in order of entering; `in_flight`
        self.changing: set[int] = set()  # islands whose phase is not "running"
        self.islands: list[IslandState] = []
        self.grow(cluster, schedulers)
        self.epochs = 0  # grows whenever an island's epoch begins or has formed; `membership`
        # who waits for what
        self.for_slice: dict[tuple[int, str], dict[int, RunRecord]] = {}  # (session, slice's name) -> runs
        self.for_code: dict[int, dict[int, RunRecord]] = {}  # plan -> runs that have not started
        self.parked: dict[int, list[tuple[RunRecord, int]]] = {}  # plan -> steps under way, in a new epoch
        # buffer -> runs that need it to have been ordered
        self.for_buffer: dict[int, dict[int, RunRecord]] = {}
        self.line: dict[int, Waiter] = {}  # for memory, by number; `admission`
        self.fresh = False  # something has come that may let one of these in
        self.readers: dict[int, list[tuple[RunRecord, int]]] = {}  # buffer -> steps under way that read it
        # run -> by seq, what has ended for another's failure
        self.unexplained: dict[int, dict[int, InFlight]] = {}
        self.draining: dict[int, None] = {}  # hosts that are being emptied; `drains`
        self.drained: dict[int, None] = {}  # hosts that are not to come back until their cordon is lifted; `drains`
        self.diskless: dict[int, None] = {}  # hosts that could not write to their disks; `failures`
        self.asleep: dict[int, None] = {}  # buffers that are to stay on their hosts; `relocation`
        self.lost_asleep: dict[int, list[int]] = {}  # client -> its names for those that were lost; `outcomes`
        self.stalls_ever = 0  # waits that have outlasted their soft bound
        # the agenda: what is to be done before the turn ends
        self.overdue: deque[InFlight] = deque()  # they have outlasted their hard bound
        self.peer_failures: deque[InFlight] = deque()  # gangs whose hosts have lost each other
        self.lost_hosts: deque[tuple[IslandState, int, str]] = deque()  # with the reason
        self.broken: deque[IslandState] = deque()  # their epoch cannot go on
        self.slices_down: deque[None] = deque()  # some are, and what needs them is not to wait
        self.failing: deque[tuple[RunRecord, Blame]] = deque()
        self.explained: deque[RunRecord] = deque()  # they have failed, and steps of theirs are unexplained
        self.stay_away: deque[tuple[BufferName, Blame]] = deque()  # spilled, and nothing brings them back
        self.admitted: deque[RunRecord] = deque()
        self.views: deque[WaitingView] = deque()  # what they waited for has come
        self.settling: deque[tuple[int, Blame | None]] = deque()  # buffers whose contents are final
        self.plan_ready: deque[int] = deque()  # plans whose code is ready, or never will be
        self.kept: deque[tuple[int, msgspec.Struct]] = deque()  # said by clients before it had recovered
        self.wake: list[RunRecord] = []  # what they waited for has come
        self.map_changed = False  # slices lie elsewhere now: plans that have not started are lowered again
        self.next_buffer = self.base + 1  # the id of the next buffer
        self.next_seq = self.base + 1  # the seq of the next gang or transfer

    def grow(self, cluster: Cluster, schedulers: Iterable[Scheduler]) -> None:
        """This is the cluster from now on. `schedulers`: of new islands."""
        self.cluster, self.all_hosts = cluster, all_hosts(cluster)
        for known, island in zip(self.islands, cluster.islands, strict=False):
            known.island = island
        first = (self.incarnation << 20) - 1
        for island, scheduler in zip(cluster.islands[len(self.islands) :], schedulers, strict=True):
            self.changing.add(island.index)
            self.islands.append(IslandState(island, scheduler, first, self.changing))

    # --- observations --------------------------------------------------------------------------------------------

    def see_held(self, buffer: int, holder: str, number: int = -1, count: int = 1) -> None:
        if self.watched:
            for each in range(buffer, buffer + count):
                self.observe(BufferHeld(each, holder if number < 0 else f"{holder} {number}"))

    def see_let_go(self, buffer: int, holder: str, number: int = -1, count: int = 1) -> None:
        if self.watched:
            for each in range(buffer, buffer + count):
                self.observe(BufferLetGo(each, holder if number < 0 else f"{holder} {number}"))

    # --- look-ups ------------------------------------------------------------------------------------------------

    def island_of_host(self, host: int) -> IslandState:
        return self.islands[self.cluster.island_of_host(host).index]

    def hosts_of(self, place: Place) -> Spans:
        return self.cluster.hosts_of(place)

    def device_memory(self, devices: Spans) -> int:
        return min(self.cluster.island_of_device(low).memory for low, _ in devices)

    def host_memory(self, hosts: Spans) -> int:
        return min(self.cluster.island_of_host(low).host_memory for low, _ in hosts)

    def host_disk(self, hosts: Spans) -> int:
        """None, if one of these hosts could not write to its disk."""
        if any(spans.contains(hosts, host) for host in self.diskless):
            return 0
        return min(self.cluster.island_of_host(low).host_disk for low, _ in hosts)

    def hosts_of_devices(self, devices: Spans) -> Iterable[tuple[Spans, int]]:
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

    def client_text(self, number: int) -> str:
        session = self.sessions.get(number)
        return f"client {session.name!r}" if session else f"client {number}"


def _ignore(seen: Observation) -> None:
    """Nobody watches."""

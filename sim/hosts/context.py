"""What the processes on hosts need of their simulation, as a protocol; `sim.simulation.Simulation` implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import simpy

from core.controller import Config, Controller
from core.model import Cluster, Gang, Hosts, Layout, Plan, Spans, spans
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Trace

from ..engine import Noise, SimClock
from ..hardware import Profile
from ..network import BulkNetwork, MessageSizes, Network

if TYPE_CHECKING:
    from ..engine import CoreShare
    from .client_process import ClientTransfer, SimClient
    from .device_queues import Fabric, Takes
    from .processes import ControllerProcess, HostProcess, Process


S = 1_000_000_000


class RareTimes(msgspec.Struct, frozen=True):
    """Nanoseconds of rare operations."""

    compile: int = 0  # a code, on each host; with 0, programs count as compiled before the clock starts
    form: int = 200_000_000  # setting up an epoch's world
    join: int = 300_000_000  # joining it
    lease: int = 10 * S  # a connection that is silent for so long is lost
    restart: int = 5 * S  # until a dismissed host starts again
    beat: int = 10 * S  # between heartbeats: they only say what need not be sent again
    pcie_latency: int = 1_000


class CohortContents(Protocol):
    """What clients put to such an island, and get from it."""

    @property
    def under_way(self) -> Mapping[int, object]: ...
    def client_end(self, machine: ClientTransfer, opening: e.OpenSend | e.OpenRecv) -> None: ...
    def connects(self, client: int, hosts: Spans, at: int) -> None: ...
    def first_word(self, getting: bool) -> int: ...


class CohortHosts(Protocol):
    """An island whose hosts are simulated together: a cohort."""

    @property
    def contents(self) -> CohortContents: ...
    def ordered(self, message: m.Ordered, at: int) -> int: ...


class Hangups(Protocol):
    """Closes connections and stops hosts; has hosts that were together simulated one by one."""

    def close(self, name: int, reason: str) -> None: ...
    def stopped(self, process: HostProcess, reason: str, for_good: bool = False) -> None: ...
    def go_apart(self, island: int) -> None: ...


class ClientTurn(Protocol):
    """The next call of a client's Python thread, which may have to wait for a core."""

    under_way: bool
    come: simpy.Event  # when the call is due

    @property
    def soonest(self) -> int: ...
    def begin(self) -> None: ...
    def take(self) -> None: ...


class Machines(Protocol):
    """The machines of processes whose threads may have to wait for a core (`sim.shared_cores`)."""

    batches: bool  # whether any messages are batched

    def named(self, client: int, name: str) -> None: ...
    def share(self, owner: Process) -> CoreShare | None: ...
    def turn(self, client: SimClient) -> ClientTurn | None: ...
    def carries(self, one: int, other: int) -> bool: ...
    def put(self, owner: Process, to: int, message: Any, at: int) -> None: ...


class Context(Protocol):
    """One simulation, as its processes see it."""

    last_seen: int  # when something other than a timer last happened
    longest_gang: int  # how long the longest gang takes of those that have been priced

    @property
    def now(self) -> int: ...
    @property
    def env(self) -> simpy.Environment: ...
    @property
    def clock(self) -> SimClock: ...

    network: Network
    contents: BulkNetwork
    weights: MessageSizes
    profile: Profile
    times: RareTimes
    seed: int
    noise: Noise
    chunk: int
    pool: int
    config: Config
    trace: Trace

    @property
    def machines(self) -> Machines: ...

    fabric: Fabric
    worlds: SimWorlds

    @property
    def trouble(self) -> Hangups: ...
    @property
    def islands(self) -> Mapping[int, CohortHosts]: ...
    @property
    def regular(self) -> bool: ...
    @property
    def hosts_of(self) -> Hosts: ...

    controller: Controller
    controller_process: ControllerProcess
    replaced: list[tuple[int, e.PolicyReplaced]]
    sizes: Callable[[Plan, Gang, int], tuple[int, ...]]
    about_code: Callable[[str], bytes]

    def run(self, until: int | Callable[[], object] | Sized) -> None: ...
    def tell(self, text: str) -> None: ...
    def regroups(self, message: m.Ordered) -> bool: ...
    def beat_again(self, island: Any) -> None: ...

    # --- the names by which processes know each other

    def process(self, name: int) -> Any: ...
    def process_of(self, connection: int) -> int: ...
    def connection(self, name: int) -> int: ...
    def numbered(self, client: int, number: int) -> None: ...
    def to_hosts(self, name: int) -> int: ...
    def from_hosts(self, peer: int) -> int: ...
    def meet(self, client: int, host: int) -> None: ...
    def send_contents(self, sender: int, receiver: int, message: Any, at: int) -> None: ...

    # --- how long things take

    def writing(self, message: Any) -> int: ...
    def taking(self, message: Any) -> int: ...
    def taking_wire(self, wire: Any) -> int: ...
    def taking_contents(self, message: Any) -> int: ...
    def prices(self, plan: Plan, gang: Gang) -> Takes: ...
    def gang_ordered(self, plan: Plan, gang: Gang, seq: int) -> None: ...
    def rows(self, host: int, effect: e.CountRows) -> e.RowsCounted: ...
    def copy_time(self, host: int, copy: e.SpillBuffer | e.RestoreBuffer, layout: Layout | None) -> int: ...


# --- collective worlds ------------------------------------------------------------------------------------------------


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

"""Array contents under way, as bytes: over ICI between hosts of one torus, otherwise over each end's NIC and PCIe.

A host's devices have a PCIe link each, which are taken to share the work, and one NIC. On a torus, a host reaches
another by the links on the side that it turns to it, those of all its chips there; hosts in between are not modelled. A
NIC carries one chunk at a time in each direction: packets of chunks to different hosts interleave in the network, but
not at the card. Nothing is stored on the way: a chunk's first bytes can reach the next card while its last bytes still
wait at the previous one. Chunks of one connection stay in order. Where the network between islands is oversubscribed,
traffic that leaves an island shares the island's uplink.

What is small (`small` bytes or less) passes between the packets of others: it neither waits for them nor holds them up.
But it does not overtake a longer chunk of its own transfer.

What a client puts or gets is bounded by its own card alone (`ClientCard`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from core.model import Cluster, Hosts, Island, Layout, Shards, shard_bytes, virtual_index
from core.protocol import Chunk, Offer
from core.record import Trace

from ..engine import SimClock, ThreadPool
from .ports import Key, Ports

# --- which links of a torus one host turns to another -----------------------------------------------------------------


class Face(NamedTuple):
    """One side of a host. `links`: how many chips have a link there."""

    axis: int
    upwards: bool
    links: int


def face_to(island: Island, devices_per_chip: int, sender: int, receiver: int) -> Face:
    """The side by which contents leave, on the way along the first axis on which the two hosts differ."""
    hosts = tuple(size // part for size, part in zip(island.torus, island.block, strict=True))
    here, there = (_at(island, host) for host in (sender, receiver))
    axis = next(number for number, (one, other) in enumerate(zip(here, there, strict=True)) if one != other)
    ahead = (there[axis] - here[axis]) % hosts[axis]
    upwards = 2 * ahead <= hosts[axis] if island.wraps[axis] else there[axis] > here[axis]
    chips = (*island.block[:-1], -(-island.block[-1] // devices_per_chip))
    return Face(axis, upwards, prod(chips) // chips[axis])


def _at(island: Island, host: int) -> tuple[int, ...]:
    """Where a host lies among the hosts."""
    first = island.coords(island.base_device + (host - island.base_host) * island.devices_per_host)
    return tuple(at // part for at, part in zip(first, island.block, strict=True))


# --- a client's network card, in one direction ------------------------------------------------------------------------

# It takes puts, or gets, in the order in which they begin. A transfer takes its time on the card when it begins, one
# host after another. Contents that can pass before their turn wait for it; those that come later pass at once, for
# their share of the card's time is past. What bounds a put or get is this card, since it sends to many hosts, or
# hears from many. So the hosts' cards are taken to have room for it, and contents of two such transfers never wait
# for each other on the way. This makes the times of one at all its hosts a few vector operations
# (`sim.cohort.content_times`).


class ClientCard:
    __slots__ = ("_turns", "free")

    def __init__(self) -> None:
        self.free = 0  # when all that has begun has passed, if it comes in time
        self._turns: dict[int, dict[int, int]] = {}  # transfer -> host -> when its next chunk may pass

    def take(self, time: int, now: int) -> int:
        """Takes so much of the card's time, from the time that is returned."""
        start = max(now, self.free)
        self.free = start + time
        return start

    def begin(self, transfer: int, took: dict[int, int], now: int) -> None:
        """`took`: by host, how long its contents take."""
        at = self.take(sum(took.values()), now)
        turns = self._turns[transfer] = {}
        for host, time in took.items():
            turns[host] = at
            at += time

    def wait(self, transfer: int, host: int, took: int, now: int) -> int:
        """A chunk to or from this host could pass now. Returns how long it waits for its turn."""
        turns = self._turns.get(transfer)
        if turns is None:  # it is over: this can only be word that it has failed
            return 0
        at = max(now, turns.get(host, 0))
        turns[host] = at + took
        return at - now

    def over(self, transfer: int) -> None:
        self._turns.pop(transfer, None)


# --- rows of a sparse exchange ----------------------------------------------------------------------------------------

Piece = tuple[int, int, int]  # (receiving host, piece, bytes)


def even_rows(host: int, source: Layout | None, target: Layout, hosts: Hosts) -> tuple[Piece, ...]:
    """What this host's shards send: their rows in turn to all shards of the target, and nothing where none is left, as
    on devices. Where a shard has replicas, the first replica sends it."""
    if source is None:
        return ()
    shards = Shards(source)
    mine: dict[int, None] = {}
    for device in hosts.devices_of(host):
        at = virtual_index(source.place, device)
        if at >= 0:
            shard = shards.shard_of(at)
            if shards.device(shard, 0) == at:
                mine[shards.ordinal(shard)] = None
    devices = [target.place.device(at) for at in range(target.place.size)]
    count, rows = len(devices), shards.size[0]
    each, more = divmod(rows, count)
    nbytes = max(1, shard_bytes(source) // max(1, rows))
    return tuple(
        sorted(
            (hosts.host_of(devices[at]), shard * count + at, nbytes * (each + (nth < more)))
            for shard in mine
            for nth in range(min(rows, count))
            for at in ((shard * rows + nth) % count,)
        )
    )


Name = int
FIRST = 1 << 50  # numbers of contents, apart from the numbers of other messages
SPOILT = 1 << 40  # as the number of a piece: it comes behind all others
KEPT = 1 << 14  # transfers with chunks that were not small, more than can be under way
CARRIED_BYTES = 64  # of a message that travels in order with contents


class Roads:
    """Bandwidths in bytes a second; with 0, sending takes no time."""

    __slots__ = ("chip", "ici", "latency", "nic", "oversubscription", "pcie", "pcie_latency", "torus_latency")

    def __init__(
        self, nic: float, latency: int, pcie: float, pcie_latency: int, ici: float, torus_latency: int,
        oversubscription: float = 1.0, chip: int = 1,
    ) -> None:  # fmt: skip
        self.nic, self.latency = nic, latency
        self.pcie, self.pcie_latency = pcie, pcie_latency  # of all devices of a host
        # of one link; 0: contents between hosts of an island go over the NICs, too
        self.ici, self.torus_latency = ici, torus_latency
        self.chip = chip  # devices of a chip, which share its links
        self.oversubscription = oversubscription


def taking(nbytes: int, bandwidth: float) -> int:
    return int(nbytes * 1e9 / bandwidth) if bandwidth else 0


def transfer_of(number: int) -> int:
    """The transfer to which a message with this number belongs."""
    return number - FIRST >> 81


def number_of(message: Any) -> int:
    """The order of messages between two ends at the same nanosecond. It depends only on what a message is, so it
    is the same whichever end is worked out first: an offer precedes its chunks, and the notice that contents are
    spoilt is last."""
    if isinstance(message, Chunk):
        piece = (message.piece + 1 << 48) + message.offset
    else:
        piece = 0 if isinstance(message, Offer) else 1 << 80
    return FIRST + (int(message.transfer) << 81) + piece


def place_of(message: Any) -> tuple[int, int, int]:
    """The same order, as numbers that fit an array: the transfer, the piece, and the offset in it."""
    if isinstance(message, Chunk):
        return message.transfer, message.piece + 1, message.offset
    return message.transfer, 0 if isinstance(message, Offer) else SPOILT, 0


class BulkNetwork:
    """Carries contents, and calls `arrive(receiver, sender, number, message)` in turn with what else the sender
    sent."""

    def __init__(
        self, clock: SimClock, cluster: Cluster, roads: Roads, arrive: Callable[[Name, Name, int, Any], None],
        trace: Trace, small: int = 0,
    ) -> None:  # fmt: skip
        self._clock, self._cluster, self._roads, self._arrive = clock, cluster, roads, arrive
        self._island_of = [island.index for island in cluster.islands for _ in range(island.hosts)]
        self._trace, self.small = trace, small
        # (sender, receiver, transfer) of chunks that were not small, the last ones
        self._long: dict[tuple[Name, Name, int], None] = {}
        self._entered: dict[tuple[Name, Name], int] = {}  # when the last chunk of a connection reached its card
        self.ports = Ports(clock)
        self._face = cache(lambda one, other: face_to(cluster.island_of_host(one), roads.chip, one, other))
        self._lives: dict[Name, int] = {}
        self.moved = 0  # bytes of contents
        self._cards: dict[tuple[Name, bool], ClientCard] = {}  # by client; for what it sends, and for what it gets
        self._writers = ThreadPool(clock, self._wrote)  # one for each transfer on a connection

    def send(self, sender: Name, receiver: Name, message: Any, nbytes: int, cost: int) -> None:
        """`cost`: how long a thread writes, after what came before of this transfer on this connection."""
        number = number_of(message)
        self.moved += nbytes if isinstance(message, Chunk) else 0
        life = self._lives.get(sender, 0), self._lives.get(receiver, 0)
        leaving = (life, sender, receiver, number, message, nbytes)
        if sender < 0:
            self._leave_client(*leaving)
            return
        if not cost:
            self._clock.at(self._clock.now, self._leave, *leaving)
        else:
            self._writers.put((sender, receiver, message.transfer), cost, leaving)

    def _wrote(self, leaving: tuple[Any, ...], now: int) -> None:
        self._leave(*leaving)

    def gone(self, messages: Iterable[Any]) -> None:
        """Records chunks that leave now in a batch of messages (`message_batching`)."""
        for chunk in messages:
            if isinstance(chunk, Chunk):
                self.moved += chunk.nbytes
                self._trace.left(chunk.transfer, self._clock.now)

    def come(self, messages: Iterable[Any]) -> None:
        """Records chunks that arrived in a batch of messages."""
        for chunk in messages:
            if isinstance(chunk, Chunk):
                self._trace.came(chunk.transfer, self._clock.now)

    # --- clients --------------------------------------------------------------------------------------------

    @property
    def way(self) -> int:
        """How long the first byte is under way between a client's card and a host's."""
        return self._roads.latency + 2 * self._roads.pcie_latency

    def taking(self, nbytes: int) -> int:
        """How long a client's card sends so many bytes."""
        return taking(nbytes, self._roads.nic)

    def card(self, client: Name, getting: bool) -> ClientCard:
        found = self._cards.get((client, getting))
        if found is None:
            found = self._cards[client, getting] = ClientCard()
        return found

    def begin(self, client: Name, transfer: int, pieces: Sequence[tuple[Name, int, int]], getting: bool) -> None:
        """A client begins to put or get: (host, piece, bytes) of each piece."""
        took: dict[Name, int] = {}
        for host, _, nbytes in pieces:
            took[host] = took.get(host, 0) + self.taking(nbytes)
        self.card(client, getting).begin(transfer, took, self._clock.now)

    def _leave_client(
        self, life: tuple[int, int], sender: Name, receiver: Name, number: int, message: Any, nbytes: int
    ) -> None:
        if isinstance(message, Chunk):
            self._trace.left(message.transfer, self._clock.now)
        wait = self._turn(sender, receiver, message, nbytes, getting=False)
        self._land_at(self._clock.now, self.way + wait, (life, sender, receiver, number, message))

    def _reach_client(
        self, life: tuple[int, int], sender: Name, receiver: Name, number: int, message: Any, nbytes: int
    ) -> None:
        wait = self._turn(receiver, sender, message, nbytes, getting=True)
        self._land_at(self._clock.now, wait, (life, sender, receiver, number, message))

    def _turn(self, client: Name, host: Name, message: Any, nbytes: int, getting: bool) -> int:
        """How long it takes from now on to pass the client's card."""
        if isinstance(message, Offer):
            return 0
        took = self.taking(nbytes) if isinstance(message, Chunk) else 0
        return self.card(client, getting).wait(message.transfer, host, took, self._clock.now) + took

    # --- hosts ----------------------------------------------------------------------------------------------

    def end(self, name: Name) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1

    def _leave(
        self, life: tuple[int, int], sender: Name, receiver: Name, number: int, message: Any, nbytes: int
    ) -> None:
        if isinstance(message, Chunk):
            self._trace.left(message.transfer, self._clock.now)
        if receiver < 0:
            at = self._clock.now + self.way
            self._clock.at(at, self._reach_client, life, sender, receiver, number, message, nbytes)
            return
        place, now = place_of(message), self._clock.now
        after = (life, sender, receiver, number, message)
        port, took, behind = self.first_port(sender, receiver, nbytes)
        if self._passes_freely(sender, receiver, message.transfer, nbytes):
            self._land_at(now, took + (self.way if self.by_card(sender, receiver) else behind), after)
        elif self.by_card(sender, receiver):
            self.ports.put(port, now, (receiver, *place), took, self._cross, took, nbytes, after)
        else:
            self.ports.put(port, now, (receiver, *place), took, self._land_at, took + behind, after)

    def _passes_freely(self, sender: Name, receiver: Name, transfer: int, nbytes: int) -> bool:
        whose = sender, receiver, transfer
        if nbytes <= self.small:
            return whose not in self._long
        self._long[whose] = None
        if len(self._long) > KEPT:
            del self._long[next(iter(self._long))]
        return False

    def first_port(self, sender: Name, receiver: Name, nbytes: int) -> tuple[int, int, int]:
        """The sender's port for contents of so many bytes to that receiver; how long they take to pass it; and how much
        later the last byte is there, if no other port follows."""
        roads = self._roads
        if sender == receiver:
            chips = self._devices_of(sender) // roads.chip
            return self.ports.number(("own", sender)), taking(nbytes, roads.ici * chips or roads.pcie), 0
        if self.by_torus(sender, receiver):
            axis, upwards, links = self._face(sender, receiver)
            port = self.ports.number(("up" if upwards else "down", sender, axis))
            return port, taking(nbytes, roads.ici * links), roads.torus_latency
        # a host's card is no faster than the bus behind it
        return self.ports.number(("out", sender)), max(taking(nbytes, roads.nic), taking(nbytes, roads.pcie)), 0

    def last_port(self, receiver: Name) -> int:
        """The receiver's port for contents from other hosts, not over a torus."""
        return self.ports.number(("in", receiver))

    def by_card(self, sender: Name, receiver: Name) -> bool:
        """Whether contents between these hosts go over their network cards."""
        return sender != receiver and not self.by_torus(sender, receiver)

    def by_uplink(self, sender: Name, receiver: Name) -> bool:
        """Whether they share the uplink of the sender's island with others."""
        return self._roads.oversubscription > 1 and not self._same_island(sender, receiver)

    def _cross(self, start: int, took: int, nbytes: int, after: tuple[Any, ...]) -> None:
        """The first byte leaves the sender's card at `start`."""
        _, sender, receiver, _, message = after
        roads = self._roads
        if not self.by_uplink(sender, receiver):
            self._enter_card(start, took, 0, after)
            return
        island = self._cluster.island_of_host(sender)
        shared = taking(nbytes, roads.nic * island.hosts / roads.oversubscription)
        port, key = self.ports.number(("uplink", island.index)), (sender, *place_of(message))
        self.ports.put(port, start, key, shared, self._enter_card, took, max(0, shared - took), after)

    def _enter_card(self, start: int, took: int, behind: int, after: tuple[Any, ...]) -> None:
        """The first byte reaches the receiver's card one latency after `start`. That card needs as long as the
        sender's did; a slower uplink on the way delays the last byte by `behind` more."""
        _, sender, receiver, _, message = after
        at = start + self.way + behind
        # a connection keeps its order, also where a chunk that waited for the uplink is followed by a shorter one
        self._entered[sender, receiver] = at = max(at, self._entered.get((sender, receiver), 0))
        key: Key = (sender, *place_of(message))
        self.ports.put(self.last_port(receiver), at, key, took, self._land_at, took, after)

    def _land_at(self, start: int, wait: int, after: tuple[Any, ...]) -> None:
        self._clock.at(start + wait, self._land, *after)

    def _land(self, life: tuple[int, int], sender: Name, receiver: Name, number: int, message: Any) -> None:
        if life == (self._lives.get(sender, 0), self._lives.get(receiver, 0)):
            if isinstance(message, Chunk):
                self._trace.came(message.transfer, self._clock.now)
            self._arrive(receiver, sender, number, message)

    def _devices_of(self, host: Name) -> int:
        return self._cluster.island_of_host(host).devices_per_host

    def by_torus(self, sender: Name, receiver: Name) -> bool:
        return bool(self._roads.ici) and sender >= 0 and receiver >= 0 and self._same_island(sender, receiver)

    def _same_island(self, sender: Name, receiver: Name) -> bool:
        if sender < 0 or receiver < 0:
            return False
        return self._island_of[sender] == self._island_of[receiver]

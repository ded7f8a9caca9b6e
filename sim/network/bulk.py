"""Array contents under way, as bytes, from port to port of their routes (`roads`).

A port carries one chunk at a time: packets of chunks interleave in the network, but not there. Nothing is stored on the
way: a chunk's first bytes reach the next port while its last bytes still wait at the previous one, and it is over when
the slowest port has carried it. Chunks of one device to another stay in order.

What is small (`small` bytes or less) passes between the packets of others: it neither waits for them nor holds them up.
But it does not overtake a longer chunk of its own transfer.

What a client puts or gets is bounded by its own card alone (`ClientCard`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from core.model import Cluster, Hosts, Layout, Layouts, Shards, shard_bytes, virtual_index
from core.protocol import Chunk, Offer
from core.record import Trace

from ..engine import SimClock, ThreadPool
from .ports import Key
from .roads import Roads, Route, taking, taking_part

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
        self._clock, self._cluster, self.roads, self._arrive = clock, cluster, roads, arrive
        self._trace, self.small = trace, small
        self.ports = roads.ports
        self.way = roads.way  # how long the first byte is under way between a client's card and a host's
        self.moves: dict[int, tuple[Layouts, Layouts]] = {}  # by transfer, of those that were ordered last: its ends
        # (sender, receiver, transfer) of chunks that were not small, the last ones
        self._long: dict[tuple[Name, Name, int], None] = {}
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

    def way_of(self, ends: tuple[Layouts, Layouts], sender: Name, receiver: Name, piece: int) -> Route:
        """The route of a piece of a move."""
        sources, targets, kept = taking_part(*ends, sender, self._cluster)[receiver]
        if piece in kept:
            sources = targets = kept[piece]
        return self.roads.route(sender, receiver, sources, targets)

    def ordered(self, transfer: int, sources: Layouts, targets: Layouts) -> None:
        self.moves[transfer] = sources, targets
        if len(self.moves) > KEPT:
            del self.moves[next(iter(self.moves))]

    # --- clients --------------------------------------------------------------------------------------------

    def taking(self, nbytes: int) -> int:
        """How long a client's card sends so many bytes."""
        return taking(nbytes, self.roads.client_nic)

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
        now = self._clock.now
        if receiver < 0:
            self._clock.at(now + self.way, self._reach_client, life, sender, receiver, number, message, nbytes)
            return
        after = (life, sender, receiver, number, message)
        route = self._route_of(sender, receiver, message)
        # what is said about contents takes no time on a road, or shorter contents, said later, would overtake it
        took = [taking(nbytes, leg.bandwidth) if isinstance(message, Chunk) else 0 for leg in route]
        if self._passes_freely(sender, receiver, message.transfer, nbytes):
            self._land_at(now, max(took) + sum([leg.after for leg in route]), after)
        else:
            self._come_to(0, now, now, route, took, after)

    def _route_of(self, sender: Name, receiver: Name, message: Any) -> Route:
        ends = self.moves.get(message.transfer) if isinstance(message, Chunk) else None
        if ends is None:
            return self.roads.route(sender, receiver)
        return self.way_of(ends, sender, receiver, message.piece)

    def _passes_freely(self, sender: Name, receiver: Name, transfer: int, nbytes: int) -> bool:
        whose = sender, receiver, transfer
        if nbytes <= self.small:
            return whose not in self._long
        self._long[whose] = None
        if len(self._long) > KEPT:
            del self._long[next(iter(self._long))]
        return False

    def _come_to(self, at: int, when: int, end: int, route: Route, took: list[int], after: tuple[Any, ...]) -> None:
        """The first byte comes to a port of the route then; the last byte not before `end`."""
        _, sender, receiver, _, message = after
        leg = route[at]
        key: Key = (sender if leg.far else receiver, *place_of(message))
        self.ports.put(leg.port, when, key, took[at], self._pass, at, end, route, took, after)

    def _pass(self, start: int, at: int, end: int, route: Route, took: list[int], after: tuple[Any, ...]) -> None:
        leg = route[at]
        end = max(end, start + took[at]) + leg.after
        if at + 1 < len(route):
            self._come_to(at + 1, start + leg.after, end, route, took, after)
        else:
            self._land_at(end, 0, after)

    def _land_at(self, start: int, wait: int, after: tuple[Any, ...]) -> None:
        self._clock.at(start + wait, self._land, *after)

    def _land(self, life: tuple[int, int], sender: Name, receiver: Name, number: int, message: Any) -> None:
        if life == (self._lives.get(sender, 0), self._lives.get(receiver, 0)):
            if isinstance(message, Chunk):
                self._trace.came(message.transfer, self._clock.now)
            self._arrive(receiver, sender, number, message)

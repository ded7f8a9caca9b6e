"""What clients put and get, at all hosts of an island at once: when contents come, as vectors.

    client --OpenSend, OpenRecv--> client_contents <--OpenRecv, OpenSend-- executors
           <---------last word---                  ---Received, Sent---->

What the transfer machines of a client and of a host would say to each other about a put, they would say to each host
alike: a grant, the chunks, that they have landed. Times differ, and each follows from two others: when the host opened
its end, and when the client opened its own (`content_times`). Nothing else under way changes them: a client's card
takes puts and gets in the order in which they begin, and hosts' cards have room (`sim.network.bulk`). So when
both ends are open, all that follows is known, and none of it is past. Executors are told at once, with a vector of
times. Gets are the same the other way round.

That holds for what is short, since receivers grant it at once (`core.transfer.credits`). What is long goes host by
host, by way of core's own machines. So does everything where messages take random times, and where processes wait for
cores.

Neighbours: `commands` brings what executors open, and tells them what has come; `sim.hosts.client_process` is the
client's machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from core.model import Layout, Spans, shard_bytes, spans
from core.protocol import Blame, OpenRecv, OpenSend, Received, RecvStep, SendStep, Sent
from core.transfer import ALL, POOL, Piece, at_once, from_hosts

from ..engine import Ints
from .content_times import ClientCosts, ContentTimes, get_times, put_times
from .host_times import HostTimes, ShiftedTimes, TimePattern, as_vector, at_one, earliest, latest
from .routes import rows_of

if TYPE_CHECKING:
    from ..hosts import ClientTransfer
    from .island import CohortIsland
    from .parts import CohortPart, PartGroup

KEPT = 64  # layouts that are remembered
NEVER = 1 << 62
Opening = OpenRecv | OpenSend


class HostEnds(msgspec.Struct, frozen=True, eq=False):
    """Hosts (`number` of them) that open their ends together, each at its own time. `opening`: as the first of them
    does it."""

    members: Spans
    number: int
    when: HostTimes | int
    opening: Opening


class ClientEnd(msgspec.Struct, frozen=True, eq=False):
    """The client's end. `turn`: when its contents can begin to pass the client's card."""

    machine: ClientTransfer
    opened: int
    turn: int
    passage: Passage


class PutOrGet(msgspec.Struct, eq=False):
    """A put or a get of which hosts still wait for the client, or for contents.

    missing: hosts of which it is not known when their ends are over. waiting: ends that wait for the client's. heard:
    when the client has the last word of the other hosts. last: the host that says it.
    """

    getting: bool
    missing: Spans
    client: ClientEnd | None = None
    waiting: list[HostEnds] = []
    heard: int = -1
    last: int = -1


class Passage(msgspec.Struct, frozen=True, eq=False):
    """How contents of a layout pass the client's card."""

    before: Ints  # for how long, by host, what goes to those before it
    took: int  # in all
    nbytes: int


class ClientContents:
    def __init__(self, island: CohortIsland) -> None:
        self._island, self._sim = island, island.sim
        sim = island.sim
        self._costs = ClientCosts(sim.profile, sim.network.latency, sim.contents.way, sim.contents.taking, sim.chunk)
        self._most_put = at_once(island.sim.pool, island.sim.chunk)  # bytes for a host
        self._most_got = at_once(POOL, island.sim.chunk)  # bytes
        # by transfer: puts and gets whose hosts go together, and of which some are not over
        self.under_way: dict[int, PutOrGet] = {}
        self._connected: dict[int, Ints] = {}  # by client: from when on it is connected to each host
        self._met: dict[tuple[int, Spans], int] = {}  # from when on it is connected to all of these
        # by layout, whether it is got, and the only piece
        self._passages: dict[tuple[Layout, bool, tuple[Piece, ...]], Passage] = {}
        self._in_pattern = lru_cache(maxsize=KEPT)(self._times_in_pattern)  # see `_as_before`
        self._size = lru_cache(maxsize=KEPT)(self._got_bytes)
        self._until = -1  # when all is over of which that is known

    # --- what goes together -----------------------------------------------------------------------------------

    @property
    def together(self) -> bool:
        """Whether some contents go to hosts together now."""
        return bool(self.under_way) or self._until >= self._sim.now

    def put_ordered(self, step: RecvStep) -> None:
        """Takes in an order to receive, and decides whether a put goes to its hosts together."""
        if step.client and step.layout is not None and self._island.contents_together:
            nbytes = self._island.island.devices_per_host * shard_bytes(step.layout)
            if nbytes <= self._most_put:
                self._begin(step, getting=False)

    def get_ordered(self, step: SendStep, layout: Layout | None) -> None:
        """Takes in an order to send a buffer of this layout, and decides as for a put."""
        if (
            step.client
            and layout is not None
            and self._island.contents_together
            and (self._size(layout) if step.shard == ALL else shard_bytes(layout)) <= self._most_got
        ):
            self._begin(step, getting=True)

    def _begin(self, step: RecvStep | SendStep, getting: bool) -> None:
        self.under_way[step.transfer] = PutOrGet(getting, step.hosts)
        if self._island.history is not None:
            self._island.history.forget()

    def _got_bytes(self, layout: Layout) -> int:
        return sum([nbytes for _, _, nbytes in from_hosts(layout, self._sim.hosts_of)])

    # --- both ends --------------------------------------------------------------------------------------------

    def opens(self, hosts: CohortPart | PartGroup, opening: Opening, when: HostTimes | int) -> None:
        """Takes in that these hosts open their ends at these times."""
        known, now = self.under_way[opening.transfer], self._sim.now
        if hosts.number == 1:
            when = max(when if isinstance(when, int) else at_one(when), now)
        elif not (isinstance(when, ShiftedTimes) and earliest(when) >= now):
            when = np.maximum(as_vector(when, hosts.number), now)
        ends = HostEnds(hosts.members, hosts.number, when, opening)
        if known.client is None:
            known.waiting.append(ends)
        else:
            self._come(known, known.client, ends)

    def client_end(self, machine: ClientTransfer, opening: Opening) -> None:
        """Takes in that the client opens its end now."""
        sim, known = self._sim, self.under_way[opening.transfer]
        passage = self._passage(opening)
        sim.contents.moved += passage.nbytes
        turn = sim.contents.card(machine.client, known.getting).take(passage.took, sim.now)
        known.client = ClientEnd(machine, sim.now, turn, passage)
        self.connects(machine.client, known.missing, sim.now + self.first_word(known.getting))
        waiting, known.waiting = known.waiting, []
        for ends in waiting:
            self._come(known, known.client, ends)

    def resume(self, client: int, hosts: Spans) -> None:
        """Takes in that this client is connected to these hosts."""
        known = self._connected[client] = np.full(self._island.island.hosts, NEVER, dtype=np.int64)
        known[rows_of(hosts, self._island.island)] = 0

    def first_word(self, getting: bool) -> int:
        """How long a client's first message is under way: an offer, or a grant."""
        return self._sim.network.latency if getting else self._sim.contents.way

    def connects(self, client: int, hosts: Spans, at: int) -> None:
        """Takes in that a client's first message to these hosts comes then, if none comes before."""
        if self._met.get((client, hosts), NEVER) <= at:
            return
        island, known = self._island.island, self._connected.get(client)
        if known is None:
            known = self._connected[client] = np.full(island.hosts, NEVER, dtype=np.int64)
        rows = np.arange(island.hosts)[rows_of(hosts, island)]
        late = rows[known[rows] > at]
        if len(late):
            known[late] = at
            self._sim.clock.at(at, self._meet, client, (late + island.base_host).tolist())
        if len(self._met) >= KEPT:
            self._met.clear()
        self._met[client, hosts] = int(known[rows].max())

    def _passage(self, opening: Opening) -> Passage:
        getting = isinstance(opening, OpenRecv)
        (layout,) = opening.targets if getting else opening.sources
        key = layout, getting, opening.pieces if len(opening.pieces) == 1 else ()
        found = self._passages.get(key)
        if found is None:
            island, bulk = self._island.island, self._sim.contents
            took = np.zeros(island.hosts, dtype=np.int64)
            for host, _, nbytes in opening.pieces:
                took[host - island.base_host] += bulk.taking(nbytes)
            nbytes = sum([nbytes for _, _, nbytes in opening.pieces])
            if len(self._passages) >= KEPT:
                self._passages.clear()
            found = self._passages[key] = Passage(np.cumsum(took) - took, int(took.sum()), nbytes)
        return found

    # --- what follows -----------------------------------------------------------------------------------------

    def _come(self, known: PutOrGet, client: ClientEnd, ends: HostEnds) -> None:
        """Works out when the contents come."""
        sim, transfer, members = self._sim, ends.opening.transfer, ends.members
        sizes = tuple([nbytes for _, _, nbytes in ends.opening.pieces])
        regular = isinstance(ends.when, ShiftedTimes) and self._as_before(known, client, ends, sizes)
        times = regular or self._times(known, client, ends, sizes)
        sim.clock.at(times.left, sim.trace.left, transfer, times.left)
        sim.clock.at(times.came, self._came, transfer)
        sim.network.messages += 2 * ends.number  # grants, and that contents have landed
        self._ended(transfer, known, members, times.heard, times.last)
        self._tell(transfer, known, members, times.over, None)

    def _times(self, known: PutOrGet, client: ClientEnd, ends: HostEnds, sizes: tuple[int, ...]) -> ContentTimes:
        connected, before, when = (self._connected[client.machine.client], client.passage.before, ends.when)
        follow = get_times if known.getting else put_times
        if isinstance(when, int):
            row = ends.members[0][0] - self._island.island.base_host
            turn = client.turn + int(before[row])
            return follow(self._costs, when, int(connected[row]), client.opened, turn, sizes)
        rows = rows_of(ends.members, self._island.island)
        return follow(self._costs, as_vector(when), connected[rows], client.opened, client.turn + before[rows], sizes)

    def _as_before(
        self, known: PutOrGet, client: ClientEnd, ends: HostEnds, sizes: tuple[int, ...]
    ) -> ContentTimes | None:
        """Contents take as long to every host as they did before, if both ends are opened in the same pattern, and all
        hosts are connected by then. None if that is not so."""
        when: Any = ends.when
        if self._met.get((client.machine.client, ends.members), NEVER) > earliest(when):
            return None
        pattern, at = when.pattern, when.at
        passage, opened, turn = client.passage, client.opened - at, client.turn - at
        return self._in_pattern(pattern, passage, known.getting, opened, turn, sizes).shifted(at)

    def _times_in_pattern(
        self, pattern: TimePattern, passage: Passage, getting: bool, opened: int, turn: int, sizes: tuple[int, ...]
    ) -> ContentTimes:
        follow = get_times if getting else put_times
        found = follow(self._costs, pattern.vector, pattern.vector, opened, turn + passage.before, sizes)
        return replace(found, over=ShiftedTimes(TimePattern(as_vector(found.over)), 0))

    def _ended(self, transfer: int, known: PutOrGet, members: Spans, heard: int, last: int) -> None:
        """These hosts' ends are over. `heard`: when the client has the last word of the last of them."""
        if heard > known.heard:
            known.heard, known.last = heard, spans.at(members, last) if last else members[0][0]
        known.missing = spans.EMPTY if known.missing == members else spans.minus(known.missing, members)
        self._until = max(self._until, heard)
        if not known.missing:
            del self.under_way[transfer]
            if known.client is not None:
                self._sim.clock.at(known.heard, known.client.machine.last_word, known.last, transfer)

    def _tell(self, transfer: int, known: PutOrGet, members: Spans, when: HostTimes | int, blame: Blame | None) -> None:
        for part in self._island.parts.among(members):
            part.open -= 1
        if self._island.history is not None:
            self._until = max(self._until, when if isinstance(when, int) else latest(when))
        if known.getting:
            self._island.commands.told_later(members, Sent(transfer), ("sent", transfer), when)
        else:
            self._island.commands.told_later(members, Received(transfer, blame), ("recv", transfer), when)

    def _meet(self, client: int, hosts: Iterable[int]) -> None:
        """Takes in what the first messages bring about. Hosts that go one by one get the messages themselves."""
        if self._sim.islands.get(self._island.island.index) is self._island:
            for host in hosts:
                self._sim.meet(client, host)

    def _came(self, transfer: int) -> None:
        self._sim.last_seen = self._sim.now
        self._sim.trace.came(transfer, self._sim.now)

    # --- clients leave ----------------------------------------------------------------------------------------

    def dropped(self, hosts: CohortPart | PartGroup, transfer: int, blame: Blame, when: HostTimes | int) -> None:
        """These hosts go on no more, because the client has gone. If it has not opened its end by then, their ends are
        over. Otherwise contents come all the same, whether or not they would have come in time."""
        times = np.maximum(as_vector(when, hosts.number), self._sim.now)
        self._sim.clock.at(int(times.min()), self._drop, transfer, hosts.members, blame, times)

    def _drop(self, transfer: int, members: Spans, blame: Blame, when: Ints) -> None:
        known = self.under_way.get(transfer)
        if known is None or not known.waiting:
            return
        known.waiting, waiting = [], known.waiting
        for ends in waiting:
            known.waiting += self._of(ends, spans.minus(ends.members, members))
        last = int(when.argmax())
        self._ended(transfer, known, members, int(when[last]), last)
        self._tell(transfer, known, members, when, blame)

    def _of(self, ends: HostEnds, members: Spans) -> list[HostEnds]:
        """Those of these ends that some members have."""
        if not members:
            return []
        at = np.zeros(self._island.island.hosts, dtype=np.int64)
        when = ends.when
        at[rows_of(ends.members, self._island.island)] = when if isinstance(when, int) else as_vector(when)
        rows = rows_of(members, self._island.island)
        return [HostEnds(members, spans.count(members), at[rows], ends.opening)]

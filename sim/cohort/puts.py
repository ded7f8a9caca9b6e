"""What clients put, at all hosts of an island at once: when its contents come, as vectors.

    client --OpenSend--> puts <--OpenRecv-- executors
           <---Landed---      ---Received-->

What the transfer machines of a client and of a host would say to each other about a put, they would say to each host
alike: a grant, the chunks, that they have landed. Times differ, and each follows from two others: when the host opened
its end, and when the client opened its own. Nothing else under way changes them: a client's card takes puts in the
order in which they begin, and hosts' cards have room (`sim.network.client_card`). So when both ends are open, all that
follows is known, and none of it is past. Executors are told at once, with a vector of times.

That holds as long as a host grants all credits at once. Short puts have credits of their own, which are taken to
suffice for all that are under way. A long put goes host by host, by way of core's own machines. So does any put where
messages take random times, and where processes wait for cores.

Neighbours: `commands` brings what executors open, and tells them what has come; `sim.hosts.client_transfer` is the
client's machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from core.model import Layout, Spans, shard_bytes, spans
from core.protocol import Blame, OpenRecv, OpenSend, Received, RecvStep
from core.transfer import short_pool

from ..engine import Ints
from .routes import rows_of

if TYPE_CHECKING:
    from ..hosts import ClientTransfer
    from .island import CohortIsland
    from .parts import CohortPart

KEPT = 64  # layouts that are remembered
NEVER = 1 << 62


class HostEnds(NamedTuple):
    """Hosts that open their ends of a put together, each at its own time. `opening`: as the first of them does it."""

    members: Spans
    when: Ints
    opening: OpenRecv


class ClientEnd(NamedTuple):
    """The client's end of a put. `turns`: by host, when the client's card can send its contents."""

    machine: ClientTransfer
    opened: int
    turns: Ints


class Put:
    """A put of which hosts still wait for contents."""

    __slots__ = ("client", "last", "missing", "waiting")

    def __init__(self, hosts: Spans) -> None:
        self.missing = hosts  # of which it is not known when their contents come
        self.client: ClientEnd | None = None
        self.waiting: list[HostEnds] = []  # for the client
        self.last = (-1, -1)  # when the last of the other hosts has its contents, and which one that is


class Puts:
    def __init__(self, island: CohortIsland) -> None:
        self._island, self._sim = island, island.sim
        self._most = short_pool(island.sim.pool, island.sim.chunk).at_once  # bytes for a host
        self._open: dict[int, Put] = {}  # by transfer
        self._connected: dict[int, Ints] = {}  # by client: from when on it is connected to each host
        self._offsets: dict[Layout, tuple[Ints, int, int]] = {}

    def ordered(self, step: RecvStep) -> None:
        """Takes in an order to receive, and decides whether the put goes to its hosts together."""
        if not step.client or step.layout is None or not self._sim.regular:
            return
        nbytes = self._island.island.devices_per_host * shard_bytes(step.layout)
        if nbytes <= self._most:
            self._open[step.transfer] = Put(step.hosts)

    def has(self, transfer: int) -> bool:
        """Whether it is a put that goes to its hosts together, and of which some wait for contents."""
        return transfer in self._open

    # --- both ends --------------------------------------------------------------------------------------------

    def host_ends(self, part: CohortPart, opening: OpenRecv, when: Ints) -> None:
        """Takes in that these hosts open their ends at these times."""
        put = self._open[opening.transfer]
        ends = HostEnds(part.members, np.maximum(when, self._sim.now), opening)
        if put.client is None:
            put.waiting.append(ends)
        else:
            self._come(put, put.client, ends)

    def client_end(self, machine: ClientTransfer, opening: OpenSend) -> None:
        """Takes in that the client opens its end now."""
        sim, transfer = self._sim, opening.transfer
        put = self._open[transfer]
        offsets, took, nbytes = self._offsets_of(opening)
        sim.cargo.moved += nbytes
        turns = offsets + sim.cargo.card(machine.client, getting=False).take(took, sim.now)
        put.client = ClientEnd(machine, sim.now, turns)
        self.connects(machine.client, put.missing, sim.now + sim.cargo.way)
        waiting, put.waiting = put.waiting, []
        for ends in waiting:
            self._come(put, put.client, ends)

    def dropped(self, part: CohortPart, transfer: int, blame: Blame, when: Ints) -> None:
        """These hosts do not want it any more, because the client has gone. If it has not opened its end by then, their
        ends are over. Otherwise contents come all the same, whether or not they would have come in time."""
        when = np.maximum(when, self._sim.now)
        self._sim.clock.at(int(when.min()), self._drop, transfer, part.members, blame, when)

    def _drop(self, transfer: int, members: Spans, blame: Blame, when: Ints) -> None:
        put = self._open.get(transfer)
        if put is None or not put.waiting:
            return
        put.waiting, waiting = [], put.waiting
        for ends in waiting:
            put.waiting += self._of(ends, spans.minus(ends.members, members))
        self._ended(transfer, put, members, when)
        self._tell(transfer, members, when, blame)

    def _of(self, ends: HostEnds, members: Spans) -> list[HostEnds]:
        """Of these ends, those of some members."""
        if not members:
            return []
        at = np.zeros(self._island.island.hosts, dtype=np.int64)
        at[rows_of(ends.members, self._island.island)] = ends.when
        return [HostEnds(members, at[rows_of(members, self._island.island)], ends.opening)]

    def connects(self, client: int, hosts: Spans, at: int) -> None:
        """Takes in that a client's first message to these hosts comes then, if none comes before."""
        island, known = self._island.island, self._connected.get(client)
        if known is None:
            known = self._connected[client] = np.full(island.hosts, NEVER, dtype=np.int64)
        rows = np.arange(island.hosts)[rows_of(hosts, island)]
        rows = rows[known[rows] > at]
        if len(rows):
            known[rows] = at
            self._sim.clock.at(at, self._meet, client, (rows + island.base_host).tolist())

    def _offsets_of(self, opening: OpenSend) -> tuple[Ints, int, int]:
        """By host, how long the client's card sends what goes to those before it; how long in all; and all bytes."""
        assert opening.source is not None
        found = self._offsets.get(opening.source)
        if found is None:
            pieces = opening.pieces
            island, cargo = self._island.island, self._sim.cargo
            took = np.zeros(island.hosts, dtype=np.int64)
            for host, _, nbytes in pieces:
                took[host - island.base_host] += cargo.taking(nbytes)
            found = np.cumsum(took) - took, int(took.sum()), sum([nbytes for _, _, nbytes in pieces])
            if len(self._offsets) >= KEPT:
                self._offsets.clear()
            self._offsets[opening.source] = found
        return found

    # --- what follows -----------------------------------------------------------------------------------------

    def _come(self, put: Put, client: ClientEnd, ends: HostEnds) -> None:
        """Works out when the contents come to these hosts."""
        sim, transfer, rows = self._sim, ends.opening.transfer, rows_of(ends.members, self._island.island)
        profile, latency, way = sim.profile, sim.network.latency, sim.cargo.way
        # a host cannot connect to a client: it waits until the client has connected
        grants = np.maximum(ends.when, self._connected[client.machine.client][rows])
        granted = grants + (profile.send + latency)
        sent = np.maximum(granted, client.opened)
        leaves = np.maximum(sent, client.turns[rows])
        # hosts that have not granted by then take an offer first
        taken = np.where(granted >= client.opened, client.opened + way + profile.receive, 0)
        for nbytes in chunks([nbytes for _, _, nbytes in ends.opening.pieces], sim.chunk):
            leaves = leaves + sim.cargo.taking(nbytes)
            taken = np.maximum(leaves + way, taken) + profile.chunk(nbytes)
        sim.clock.at(int(sent.min()), self._left, transfer)
        sim.clock.at(int(leaves.max()) + way, self._came, transfer)
        sim.network.messages += 2 * len(taken)  # grants, and that contents have landed
        self._ended(transfer, put, ends.members, taken)
        self._tell(transfer, ends.members, taken, None)

    def _ended(self, transfer: int, put: Put, members: Spans, when: Ints) -> None:
        """These hosts' ends are over at these times, which the client learns."""
        last = int(when.argmax())
        put.last = max(put.last, (int(when[last]), next(islice(spans.items(members), last, None))))
        put.missing = spans.minus(put.missing, members)
        if put.missing:
            return
        sim, client, (at, host) = self._sim, put.client, put.last
        del self._open[transfer]
        if client is not None:
            sim.clock.at(at + sim.profile.send + sim.network.latency, client.machine.landed, host, transfer)

    def _tell(self, transfer: int, members: Spans, when: Ints, blame: Blame | None) -> None:
        for part in self._island.parts.among(members):
            part.open -= 1
        self._island.commands.told_later(members, Received(transfer, blame), ("recv", transfer), when)

    def _meet(self, client: int, hosts: Iterable[int]) -> None:
        for host in hosts:
            self._sim.meet(client, host)

    def _left(self, transfer: int) -> None:
        self._sim.trace.left(transfer, self._sim.now)

    def _came(self, transfer: int) -> None:
        self._sim.last_seen = self._sim.now
        self._sim.trace.came(transfer, self._sim.now)


def chunks(sizes: Sequence[int], chunk: int) -> list[int]:
    """The bytes of each chunk, of pieces of these sizes."""
    return [min(chunk, size - at) for size in sizes for at in range(0, max(size, 1), chunk)]

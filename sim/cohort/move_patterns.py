"""Who sends what to whom when contents move between two layouts, as arrays: an edge for each two hosts.

Edges are numbered by the sender's port, then the receiver. A `ChunkWave` has at most one batch of each edge: contents
that go over a torus are one batch, since no chunk of an edge waits for another thread; over network cards, each chunk
is a batch, since a thread writes it and another takes it.

Neighbours: `host_contents` sends these batches; core's `resharding` says what is sent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.model import Spans, spans

from ..engine import Ints
from ..hardware import Profile
from ..network import CARRIED_BYTES, BulkNetwork

Edges = NDArray[np.intp]
KEPT = 256  # sets of hosts of which the edges are remembered


class ChunkWave(NamedTuple):
    """Batches. `cost`: of writing one, and of taking one; `place`: the number of its piece and its offset, as in
    `bulk.place_of`; `free`: they are small, and wait at no port."""

    edges: Edges
    took: Ints
    cost: Ints
    place: tuple[Ints, Ints]
    card: bool  # over network cards, and not over a torus
    free: bool


class Batch(NamedTuple):
    piece: int
    offset: int
    took: int
    cost: int
    free: bool


class End:
    """The hosts at one end. `of_edge`: which of them an edge belongs to; `edges`: how many each has."""

    def __init__(self, hosts: Ints, island: int) -> None:
        self.island = island
        each, of_edge, edges = np.unique(hosts, return_inverse=True, return_counts=True)
        self.hosts: list[int] = each.tolist()
        self.spans = spans.of(self.hosts)
        self.number = len(self.hosts)
        self.of_edge: Edges = of_edge.reshape(-1)
        self.edges: Ints = edges.astype(np.int64)
        self.single = self.number == len(hosts)  # each host has one edge
        self.edges_of = lru_cache(maxsize=KEPT)(self._edges_of)

    def _edges_of(self, members: Spans) -> tuple[Edges, Edges]:
        """(their edges, by edge which of the members it belongs to)."""
        place = {host: at for at, host in enumerate(spans.items(members))}
        member = np.array([place.get(host, -1) for host in self.hosts])[self.of_edge]
        edges = np.flatnonzero(member >= 0)
        return edges, member[edges]


class Pattern:
    """`word`: by edge, how long a grant takes, or the news that contents have landed. `behind`: how much later than at
    the sender's port the last byte of a batch is there, unless it goes over cards."""

    def __init__(
        self, pieces: list[tuple[int, int, int, int]], islands: tuple[int, int], bulk: BulkNetwork, costs: MoveCosts
    ) -> None:
        """`pieces`: (sender, receiver, number, bytes). `islands`: of the senders, and of the receivers."""
        ports = {pair: bulk.first_port(*pair, 0) for pair in {piece[:2] for piece in pieces}}
        pairs = sorted(ports, key=lambda pair: (ports[pair][0], pair[1]))
        self.number = len(pairs)
        sizes = dict.fromkeys(pairs, 0)
        for sender, receiver, _, nbytes in pieces:
            sizes[sender, receiver] += nbytes
        self.nbytes = np.array(list(sizes.values()), dtype=np.int64)
        self.sender, self.receiver = (np.array(hosts, dtype=np.int64) for hosts in zip(*pairs, strict=True))
        self.senders, self.receivers = End(self.sender, islands[0]), End(self.receiver, islands[1])
        self.port = np.array([ports[pair][0] for pair in pairs], dtype=np.int64)
        self.behind = np.array([ports[pair][2] for pair in pairs], dtype=np.int64)
        self.card = np.array([bulk.by_card(*pair) for pair in pairs])
        self.cards = bool(self.card.any())
        there = [bulk.last_port(pair[1]) if card else 0 for pair, card in zip(pairs, self.card, strict=True)]
        self.there = np.array(there, dtype=np.int64)
        self.rank: Ints = np.empty(self.number, dtype=np.int64)  # by the receiver's port, then the sender
        self.rank[np.lexsort((self.sender, self.there))] = np.arange(self.number)
        away = self.sender != self.receiver
        self.word = np.where(away, costs.word, 0)
        # what an offer costs, or the news that contents are spoilt
        self.offer_write = np.where(self.card, costs.profile.chunk(CARRIED_BYTES), 0)
        self.offer_take = np.where(away, costs.profile.receive, 0)
        self.offer_took = np.array([bulk.first_port(*pair, CARRIED_BYTES)[1] for pair in pairs], dtype=np.int64)
        self.waves = self._waves(pairs, pieces, bulk, costs)
        self.batches = np.zeros(self.number, dtype=np.int64)
        for wave in self.waves:
            self.batches[wave.edges] += 1
        self.everything: Edges = np.arange(self.number)

    def _waves(
        self, pairs: list[tuple[int, int]], pieces: list[tuple[int, int, int, int]], bulk: BulkNetwork, costs: MoveCosts
    ) -> list[ChunkWave]:
        of_edge: dict[tuple[int, int], list[Batch]] = {pair: [] for pair in pairs}
        for sender, receiver, piece, nbytes in sorted(pieces):
            mine = of_edge[sender, receiver]
            for at in range(0, nbytes, costs.chunk):
                size = min(costs.chunk, nbytes - at)
                free = size <= bulk.small and (not mine or mine[-1].free)
                took = bulk.first_port(sender, receiver, size)[1]
                mine.append(Batch(piece + 1, at, took, costs.profile.chunk(size), free))
        rows: dict[tuple[int, bool, bool], list[tuple[int, Batch]]] = {}
        for edge, pair in enumerate(pairs):
            card = bool(self.card[edge])
            for number, batch in enumerate(of_edge[pair] if card else [together(of_edge[pair])]):
                rows.setdefault((number, card, batch.free), []).append((edge, batch))
        return [_wave(rows[key], card=key[1], free=key[2]) for key in sorted(rows)]


def together(batches: list[Batch]) -> Batch:
    """What goes over a torus, as one: small batches pass side by side, others one behind the other."""
    long = [batch for batch in batches if not batch.free]
    took = sum([batch.took for batch in long]) or max([batch.took for batch in batches])
    first = (long or batches)[0]
    return Batch(first.piece, first.offset, took, 0, not long)


def _wave(rows: list[tuple[int, Batch]], card: bool, free: bool) -> ChunkWave:
    columns = [np.array(column, dtype=np.int64) for column in zip(*[batch for _, batch in rows], strict=True)]
    edges = np.array([edge for edge, _ in rows], dtype=np.intp)
    return ChunkWave(edges, columns[2], columns[3], (columns[0], columns[1]), card, free)


class MoveCosts(NamedTuple):
    """`word`: how long a grant takes to another host. `chunk`: bytes of the largest one."""

    profile: Profile
    word: int
    chunk: int

"""Who sends what to whom when contents move between two layouts, as arrays: an edge for each two hosts.

Edges are numbered by the sender, then the receiver. A `ChunkWave` has at most one batch of each edge: a chunk.

Neighbours: `host_contents` sends these batches; core's `resharding` says what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.model import Layouts, Spans, spans

from ..engine import Ints
from ..hardware import Profile
from ..network import CARRIED_BYTES, BulkNetwork, Route, taking

Edges = NDArray[np.intp]
Pieces = list[tuple[int, int, int, int]]  # (sender, receiver, number, bytes)
KEPT = 256  # sets of hosts of which the edges are remembered


class WaveLeg(NamedTuple):
    """A port for each batch. `after`: how long from there to the next, or to the receiver; `far`: see `roads.Leg`."""

    ports: Ints
    took: Ints
    after: Ints
    far: bool


class ChunkWave(NamedTuple):
    """Batches. `cost`: of writing one, and of taking one; `place`: the number of its piece and its offset, as in
    `bulk.place_of`; `legs`: their ways, which are alike; `quick`: how long each takes if it waits nowhere; `free`: they
    are small, and wait at no port."""

    edges: Edges
    cost: Ints
    place: tuple[Ints, Ints]
    legs: tuple[WaveLeg, ...]
    quick: Ints
    free: bool

    def some(self, which: Edges) -> ChunkWave:
        legs = tuple(WaveLeg(leg.ports[which], leg.took[which], leg.after[which], leg.far) for leg in self.legs)
        place = self.place[0][which], self.place[1][which]
        return ChunkWave(self.edges[which], self.cost[which], place, legs, self.quick[which], self.free)


class Batch(NamedTuple):
    edge: int
    piece: int
    offset: int
    nbytes: int
    cost: int
    route: Route


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
    """`word`: by edge, how long a grant takes, or the news that contents have landed."""

    def __init__(self, sources: Layouts, targets: Layouts, pieces: Pieces, bulk: BulkNetwork, costs: MoveCosts) -> None:
        pairs = sorted({piece[:2] for piece in pieces})
        self.number = len(pairs)
        sizes = dict.fromkeys(pairs, 0)
        for sender, receiver, _, nbytes in pieces:
            sizes[sender, receiver] += nbytes
        self.nbytes = np.array(list(sizes.values()), dtype=np.int64)
        self.sender, self.receiver = (np.array(hosts, dtype=np.int64) for hosts in zip(*pairs, strict=True))
        self.senders = End(self.sender, sources[0].place.island)
        self.receivers = End(self.receiver, targets[0].place.island)
        away = self.sender != self.receiver
        self.word = np.where(away, costs.word, 0)
        # what an offer costs, or the news that contents are spoilt
        card = np.array([bulk.roads.by_card(*pair) for pair in pairs])
        self.offer_write = np.where(card, costs.profile.chunk(CARRIED_BYTES), 0)
        self.offer_take = np.where(away, costs.profile.receive, 0)
        offers = [Batch(edge, 0, 0, 0, 0, bulk.roads.route(*pair)) for edge, pair in enumerate(pairs)]
        self.offers = _waves([(0, each) for each in offers], bulk.small >= CARRIED_BYTES)
        self.offer_quick = np.zeros(self.number, dtype=np.int64)
        for wave in self.offers:
            self.offer_quick[wave.edges] = wave.quick
        self.waves = self._chunks(sources, targets, pairs, pieces, bulk, costs)
        self.batches = np.zeros(self.number, dtype=np.int64)
        for wave in self.waves:
            self.batches[wave.edges] += 1

    @staticmethod
    def _chunks(
        sources: Layouts, targets: Layouts, pairs: list[tuple[int, int]], pieces: Pieces, bulk: BulkNetwork,
        costs: MoveCosts,
    ) -> list[ChunkWave]:  # fmt: skip
        edges = {pair: edge for edge, pair in enumerate(pairs)}
        free: list[tuple[int, Batch]] = []
        long: list[tuple[int, Batch]] = []
        counts = [0] * len(pairs)
        longs: set[int] = set()
        for sender, receiver, piece, nbytes in sorted(pieces):
            edge = edges[sender, receiver]
            route = bulk.way_of((sources, targets), sender, receiver, piece)
            card = bulk.roads.by_card(sender, receiver)
            for at in range(0, nbytes, costs.chunk):
                size = min(costs.chunk, nbytes - at)
                batch = Batch(edge, piece + 1, at, size, costs.profile.chunk(size) if card else 0, route)
                if size > bulk.small:
                    longs.add(edge)
                (long if edge in longs else free).append((counts[edge], batch))
                counts[edge] += 1
        return _waves(free, True) + _waves(long, False)


def _waves(numbered: Iterable[tuple[int, Batch]], free: bool) -> list[ChunkWave]:
    """Of each edge at most one batch, by its number among them, and all with as many legs."""
    rows: dict[tuple[int, tuple[bool, ...]], list[Batch]] = {}
    for number, batch in numbered:
        rows.setdefault((number, tuple([leg.far for leg in batch.route])), []).append(batch)
    return [_wave(rows[key], key[1], free) for key in sorted(rows)]


def _wave(batches: list[Batch], far: tuple[bool, ...], free: bool) -> ChunkWave:
    def column(values: Iterable[int]) -> Ints:
        return np.fromiter(values, dtype=np.int64, count=len(batches))

    legs = []
    for at, here in enumerate(far):
        took = column(taking(each.nbytes, each.route[at].bandwidth) for each in batches)
        ports = column(each.route[at].port for each in batches)
        legs.append(WaveLeg(ports, took, column(each.route[at].after for each in batches), here))
    quick = np.maximum.reduce([leg.took for leg in legs]) + sum([leg.after for leg in legs])
    place = column(each.piece for each in batches), column(each.offset for each in batches)
    edges = np.array([each.edge for each in batches], dtype=np.intp)
    return ChunkWave(edges, column(each.cost for each in batches), place, tuple(legs), quick, free)


class MoveCosts(NamedTuple):
    """`word`: how long a grant takes to another host. `chunk`: bytes of the largest one."""

    profile: Profile
    word: int
    chunk: int

"""Where the pieces of transfers lie on one host: worked out once, since the moves of a program recur.

Pieces are those of `core.model.resharding`. Neighbours: `shard_io` cuts them out of shards, and assembles them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from core.model import Hosts, Index, Layout, Piece, Shards, numbered, receives, sends, virtual_index

KEPT = 256  # moves that are remembered
Layouts = tuple[Layout, ...]
Box = tuple[Any, ...]  # slices, and an Ellipsis behind them, so that indexing always gives a view


class Spot(NamedTuple):
    """Where a piece lies: which of the transfer's arrays, which shard of it, and where in that shard."""

    array: int
    shard: Index
    box: Box


class HostPieces:
    """`me`: the host."""

    def __init__(self, me: int, hosts: Hosts) -> None:
        self.me, self.hosts = me, hosts
        self._sent: dict[tuple[Layouts, Layouts], dict[int, Spot]] = {}
        self._received: dict[tuple[Layouts, Layouts], dict[tuple[int, int], Spot]] = {}
        self._here: dict[Layout, tuple[Index, ...]] = {}
        self._shards: dict[Layout, Shards] = {}

    def sent(self, sources: Layouts, targets: Layouts) -> Mapping[int, Spot]:
        """By number."""
        found = self._sent.get((sources, targets))
        if found is None:
            found = {}
            for array, (first, source, target) in enumerate(numbered(sources, targets)):
                shards = Shards(source)
                for piece in sends(source, target, self.me, self.hosts):
                    index = shards.shard_of(piece.source)
                    found[first + piece.number] = Spot(array, index, _within(shards, index, piece))
            _remember(self._sent, (sources, targets), found)
        return found

    def received(self, sources: Layouts, targets: Layouts) -> Mapping[tuple[int, int], Spot]:
        """By sender and number."""
        found = self._received.get((sources, targets))
        if found is None:
            found = {}
            for array, (first, source, target) in enumerate(numbered(sources, targets)):
                shards = Shards(target)
                for piece in receives(source, target, self.me, self.hosts):
                    index = shards.shard_of(piece.targets[0])
                    spot = Spot(array, index, _within(shards, index, piece))
                    found[piece.sender, first + piece.number] = spot
            _remember(self._received, (sources, targets), found)
        return found

    def shards(self, layout: Layout) -> Shards:
        found = self._shards.get(layout)
        if found is None:
            found = Shards(layout)
            _remember(self._shards, layout, found)
        return found

    def here(self, layout: Layout) -> tuple[Index, ...]:
        """The distinct shards that this host has."""
        found = self._here.get(layout)
        if found is None:
            found = tuple(local_shards(layout, self.hosts.devices_of(self.me)))
            _remember(self._here, layout, found)
        return found


def _remember(table: dict[Any, Any], key: object, value: object) -> None:
    if len(table) >= KEPT:
        table.clear()
    table[key] = value


def local_shards(layout: Layout, devices: Iterable[int]) -> dict[Index, list[int]]:
    """The distinct shards on these devices, and the devices that have each."""
    shards, found = Shards(layout), dict[Index, list[int]]()
    for device in devices:
        virtual = virtual_index(layout.place, device)
        if virtual >= 0:
            found.setdefault(shards.shard_of(virtual), []).append(device)
    return found


def _within(shards: Shards, index: Index, piece: Piece) -> Box:
    """Where the piece lies in this shard."""
    lows = (start - part * size for start, part, size in zip(piece.start, index, shards.size, strict=True))
    return *(slice(low, low + size) for low, size in zip(lows, piece.shape, strict=True)), ...

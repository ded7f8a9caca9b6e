"""Where the pieces of transfers lie on one host: worked out once, since the moves of a program recur.

Pieces are those of `core.model.resharding`. Neighbours: `shard_io` cuts them out of shards, and assembles them.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from core.model import Hosts, Index, Layout, Layouts, Piece, Shards, of_each, receives, sends, virtual_index

KEPT = 256  # moves that are remembered, and layouts
Box = tuple[Any, ...]  # slices, and an Ellipsis behind them, so that indexing always gives a view


shards_of = lru_cache(KEPT)(Shards)  # arithmetic of a layout


class Spot(NamedTuple):
    """Where a piece lies: which of the transfer's arrays, which shard of it, and where in that shard."""

    array: int
    shard: Index
    box: Box


class HostPieces:
    """`me`: the host. `sent`, `received`: where each piece of a move lies, by its number, and its sender. `here`: the
    distinct shards of a layout that this host has."""

    def __init__(self, me: int, hosts: Hosts) -> None:
        self.me, self.hosts = me, hosts
        self.sent = lru_cache(KEPT)(self._sent)
        self.received = lru_cache(KEPT)(self._received)
        self.here = lru_cache(KEPT)(self._here)
        self._sends, self._receives = (partial(find, host=me, hosts=hosts) for find in (sends, receives))

    def _sent(self, sources: Layouts, targets: Layouts) -> Mapping[int, Spot]:
        return {
            first + piece.number: self._spot(array, sources[array], piece.source, piece)
            for array, (first, pieces) in enumerate(of_each(sources, targets, self._sends))
            for piece in pieces
        }

    def _received(self, sources: Layouts, targets: Layouts) -> Mapping[tuple[int, int], Spot]:
        return {
            (piece.sender, first + piece.number): self._spot(array, targets[array], piece.targets[0], piece)
            for array, (first, pieces) in enumerate(of_each(sources, targets, self._receives))
            for piece in pieces
        }

    def _spot(self, array: int, layout: Layout, device: int, piece: Piece) -> Spot:
        shards = shards_of(layout)
        index = shards.shard_of(device)
        return Spot(array, index, _within(shards, index, piece))

    def _here(self, layout: Layout) -> tuple[Index, ...]:
        return tuple(local_shards(layout, self.hosts.devices_of(self.me)))


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

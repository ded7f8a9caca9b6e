"""Who sends which box to whom when an array changes place or sharding: planned a host at a time, never M x N.

A sharding splits an array along its dimensions, so the shards that meet a given shard are a product of
ranges, one a dimension. A host walks only over those that meet its own shards, on either side of the move,
and both sides come to the same pieces by the same arithmetic:

- A target shard takes the elements of each source shard that meets it from exactly one of that shard's
  replicas.
- A host that holds a replica of the source shard takes from itself (a copy that crosses nothing).
- Any other host takes each element once, for all of its devices that want it. Its lowest virtual device asks;
  the replica asked is the one at the same fraction of the replicas as the asker is of all who want that
  source shard, so replicas share the work evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Protocol

import msgspec

from .place import Grid, Place
from .plan import Layout
from .program import ITEM_BYTES

Index = tuple[int, ...]  # of a shard: one number a dimension


class Hosts(Protocol):
    """What must be known of the cluster: which devices a host has. They are consecutive."""

    def host_of(self, device: int) -> int: ...

    def devices_of(self, host: int) -> range: ...


class Piece(msgspec.Struct, frozen=True):
    """One box that goes from one host to one host. `number` is unique within the move and the same seen from
    both.

    Devices are virtual indices of the source's and the target's place; `start` is in the whole array.
    """

    number: int
    sender: int
    receiver: int
    source: int
    targets: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    nbytes: int


def sends(source: Layout, target: Layout, host: int, hosts: Hosts) -> list[Piece]:
    """All that this host sends, itself among the receivers; sorted by receiver, then number."""
    return sorted(
        _Move(source, target, hosts).sent_by(host), key=lambda piece: (piece.receiver, piece.number)
    )


def receives(source: Layout, target: Layout, host: int, hosts: Hosts) -> list[Piece]:
    """All that this host receives, itself among the senders; sorted by sender, then number."""
    return sorted(_Move(source, target, hosts).got_by(host), key=lambda piece: (piece.sender, piece.number))


def sends_by_host(
    source: Layout, target: Layout, host: int, hosts: Hosts
) -> tuple[tuple[int, int, int], ...]:
    """(receiver, piece, nbytes), as OpenSend wants them."""
    return tuple((piece.receiver, piece.number, piece.nbytes) for piece in sends(source, target, host, hosts))


def receives_by_host(
    source: Layout, target: Layout, host: int, hosts: Hosts
) -> tuple[tuple[int, int, int], ...]:
    """(sender, piece, nbytes), as OpenRecv wants them."""
    return tuple(
        (piece.sender, piece.number, piece.nbytes) for piece in receives(source, target, host, hosts)
    )


@lru_cache(maxsize=4096)
def shard_bytes(layout: Layout) -> int:
    """What the array takes on each device of its place."""
    return prod(Shards(layout).size) * ITEM_BYTES[layout.dtype]


@lru_cache(maxsize=4096)
def canonical(layout: Layout) -> Layout:
    """Two layouts put the same box on each device exactly if this is the same for both.

    Axes of one device go; axes that neighbour in the mesh and count up together (or both replicate) become
    one.
    """
    home = [(-1, 0)] * len(layout.mesh)  # by axis: the dimension that it splits and its rank there
    for dimension, axes in enumerate(layout.sharding.dims):
        rank = 0
        for axis in axes:
            if layout.mesh[axis] > 1:
                home[axis] = (dimension, rank)
                rank += 1
    mesh: list[int] = []
    owners: list[tuple[int, int]] = []
    last: tuple[int, int] | None = None
    for axis, extent in enumerate(layout.mesh):
        if extent == 1:
            continue
        dimension, rank = home[axis]
        if last is not None and (last == (dimension, rank - 1) or last[0] == dimension == -1):
            mesh[-1] *= extent
        else:
            mesh.append(extent)
            owners.append((dimension, rank))
        last = (dimension, rank)
    dims = tuple(
        tuple(
            axis
            for _, axis in sorted((rank, axis) for axis, (of, rank) in enumerate(owners) if of == dimension)
        )
        for dimension in range(len(layout.shape))
    )
    sharding = type(layout.sharding)(dims if any(dims) else ())
    return Layout(layout.shape, layout.dtype, layout.place, tuple(mesh), sharding)


def is_local(source: Layout, target: Layout) -> bool:
    """Each device already holds what it shall hold, because the target only splits further (same place)."""
    if source.mesh != target.mesh:
        return False
    held = source.sharding.dims or ((),) * len(source.shape)
    wanted = target.sharding.dims or ((),) * len(target.shape)
    return all(mine == other[: len(mine)] for mine, other in zip(held, wanted, strict=True))


class Shards:
    """The arithmetic of one layout: virtual device <-> (shard, replica), and shard -> box."""

    def __init__(self, layout: Layout) -> None:
        mesh, dims = layout.mesh, layout.sharding.dims or ((),) * len(layout.shape)
        strides = [prod(mesh[axis + 1 :]) for axis in range(len(mesh))]
        used = {axis for axes in dims for axis in axes}
        self._axes = [[(mesh[axis], strides[axis]) for axis in axes] for axes in dims]
        self._free = [(mesh[axis], strides[axis]) for axis in range(len(mesh)) if axis not in used]
        self.parts = tuple(prod(extent for extent, _ in axes) for axes in self._axes)
        self.size = tuple(size // parts for size, parts in zip(layout.shape, self.parts, strict=True))
        self.replicas = prod(extent for extent, _ in self._free)
        self.count = prod(self.parts)

    def shard_of(self, device: int) -> Index:
        return tuple(_read(device, axes) for axes in self._axes)

    def replica_of(self, device: int) -> int:
        return _read(device, self._free)

    def device(self, shard: Index, replica: int) -> int:
        found = _write(replica, self._free)
        for part, axes in zip(shard, self._axes, strict=True):
            found += _write(part, axes)
        return found

    def ordinal(self, shard: Index) -> int:
        return _rank(shard, [range(parts) for parts in self.parts])

    def meeting(self, shard: Index, other: Shards) -> list[range]:
        """Which shards of `other`, dimension by dimension, meet this one of ours."""
        return [
            range(part * size // theirs, -(-(part + 1) * size // theirs))
            for part, size, theirs in zip(shard, self.size, other.size, strict=True)
        ]

    def box(self, shard: Index, other: Shards, theirs: Index) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where our shard and one of `other` overlap: start and shape."""
        low = tuple(
            max(i * size, j * other_size)
            for i, size, j, other_size in zip(shard, self.size, theirs, other.size, strict=True)
        )
        high = tuple(
            min((i + 1) * size, (j + 1) * other_size)
            for i, size, j, other_size in zip(shard, self.size, theirs, other.size, strict=True)
        )
        return low, tuple(end - start for start, end in zip(low, high, strict=True))


class _Move:
    """One move, seen from any host."""

    def __init__(self, source: Layout, target: Layout, hosts: Hosts) -> None:
        self._from, self._to = Shards(source), Shards(target)
        self._item = ITEM_BYTES[source.dtype]
        self._empty = prod(source.shape) == 0
        self._hosts = hosts
        self._source, self._target = source.place, target.place
        self._holders: dict[
            int, dict[Index, list[int]]
        ] = {}  # host -> source shard -> its devices, ascending
        self._askers: dict[int, dict[Index, list[int]]] = {}  # host -> target shard -> its devices, ascending

    def sent_by(self, host: int) -> Iterator[Piece]:
        if self._empty:
            return
        yield from self._kept_by(host)
        for shard, devices in self._held(host).items():
            ranges = self._from.meeting(shard, self._to)
            wanting = self._to.replicas * prod(map(len, ranges))
            for device in devices:
                replica, of = self._from.replica_of(device), self._from.replicas
                for rank in range(-(-replica * wanting // of), -(-(replica + 1) * wanting // of)):
                    place, their_replica = divmod(rank, self._to.replicas)
                    theirs = _unrank(place, ranges)
                    asker = self._to.device(theirs, their_replica)
                    receiver = self._hosts.host_of(self._target.device(asker))
                    targets = self._asked(receiver)[theirs]
                    if targets[0] == asker and shard not in self._held(receiver):
                        yield self._piece((host, receiver), device, shard, targets, theirs)

    def got_by(self, host: int) -> Iterator[Piece]:
        if self._empty:
            return
        yield from self._kept_by(host)
        for mine, targets in self._asked(host).items():
            their_replica = self._to.replica_of(targets[0])
            for shard in product(*self._to.meeting(mine, self._from)):
                if shard in self._held(host):
                    continue
                ranges = self._from.meeting(shard, self._to)
                wanting = self._to.replicas * prod(map(len, ranges))
                rank = _rank(mine, ranges) * self._to.replicas + their_replica
                device = self._from.device(shard, rank * self._from.replicas // wanting)
                sender = self._hosts.host_of(self._source.device(device))
                yield self._piece((sender, host), device, shard, targets, mine)

    def _kept_by(self, host: int) -> Iterator[Piece]:
        """What a host takes from itself: each device from its own shard if it has it, else from a
        neighbour's."""
        held = self._held(host)
        for mine, targets in self._asked(host).items():
            for shard in product(*self._to.meeting(mine, self._from)) if held else ():
                here = {self._source.device(device): device for device in held.get(shard, ())}
                if here:
                    for asker in targets:
                        device = here.get(self._target.device(asker), held[shard][0])
                        yield self._piece((host, host), device, shard, (asker,), mine)

    def _piece(
        self, ends: tuple[int, int], device: int, shard: Index, targets: Sequence[int], theirs: Index
    ) -> Piece:
        start, shape = self._from.box(shard, self._to, theirs)
        number = targets[0] * self._from.count + self._from.ordinal(shard)
        nbytes = prod(shape) * self._item
        return Piece(number, *ends, device, tuple(targets), start, shape, nbytes)

    def _held(self, host: int) -> dict[Index, list[int]]:
        found = self._holders.get(host)
        if found is None:
            found = self._holders[host] = _by_shard(self._from, self._source, self._hosts.devices_of(host))
        return found

    def _asked(self, host: int) -> dict[Index, list[int]]:
        found = self._askers.get(host)
        if found is None:
            found = self._askers[host] = _by_shard(self._to, self._target, self._hosts.devices_of(host))
        return found


def _by_shard(shards: Shards, place: Place, devices: range) -> dict[Index, list[int]]:
    found: dict[Index, list[int]] = {}
    for virtual in sorted(index for device in devices if (index := virtual_index(place, device)) >= 0):
        found.setdefault(shards.shard_of(virtual), []).append(virtual)
    return found


def virtual_index(place: Place, device: int) -> int:
    """Which virtual device of the place this is, or -1."""
    before = 0
    for grid in place.grids:
        index = _grid_index(grid, device)
        if index >= 0:
            return before + index
        before += grid.size
    return -1


def _grid_index(grid: Grid, device: int) -> int:
    """Digits by descending stride, which is exact for a block of a torus: a stride is longer than all below
    it."""
    rest, index = device - grid.base, 0
    if rest < 0:
        return -1
    for axis in sorted(range(len(grid.shape)), key=lambda axis: (-grid.strides[axis], -grid.shape[axis])):
        if grid.shape[axis] > 1:
            digit = min(rest // grid.strides[axis], grid.shape[axis] - 1)
            rest -= digit * grid.strides[axis]
            index += digit * prod(grid.shape[axis + 1 :])
    return index if rest == 0 else -1


def _read(device: int, axes: list[tuple[int, int]]) -> int:
    """The number that these mesh axes spell (major first) in a virtual device's index."""
    found = 0
    for extent, stride in axes:
        found = found * extent + device // stride % extent
    return found


def _write(number: int, axes: list[tuple[int, int]]) -> int:
    found = 0
    for extent, stride in reversed(axes):
        number, digit = divmod(number, extent)
        found += digit * stride
    return found


def _rank(index: Index, ranges: list[range]) -> int:
    found = 0
    for part, span in zip(index, ranges, strict=True):
        found = found * len(span) + part - span.start
    return found


def _unrank(rank: int, ranges: list[range]) -> Index:
    found: list[int] = []
    for span in reversed(ranges):
        rank, digit = divmod(rank, len(span))
        found.append(span[digit])
    return tuple(reversed(found))

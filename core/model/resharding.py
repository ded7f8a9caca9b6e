"""Plans how an array moves between two layouts: `sends` and `receives` list the pieces of one host.

Arrays that go as one have the numbers of their pieces one after another (`numbered`).

A sharding splits an array along its dimensions, so the shards that overlap a given shard are a product of ranges,
one for each dimension. A host looks only at the shards that overlap its own, so a plan never costs M x N. The
sending and the receiving host compute the same pieces, by these rules:

- A target shard takes the elements of each source shard that overlaps it from exactly one of that shard's
  replicas.
- A host that holds a replica of the source shard takes the elements from itself.
- Any other host receives each element once, for all of its devices that need it. Its lowest such virtual device
  is the asker. If the asker is at a fraction f of all askers of a source shard, it asks the replica at the same
  fraction f of the shard's replicas. So the replicas share the work evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Protocol, TypeVar

import msgspec

from .place import Grid, Place
from .plan import Layout
from .program import ITEM_BYTES

Index = tuple[int, ...]  # a shard's index: one number for each dimension
Layouts = tuple[Layout, ...]  # of arrays that go as one
Found = TypeVar("Found")


class Hosts(Protocol):
    """The part of a cluster that resharding needs: which devices each host has.

    They are consecutive, and hosts are numbered in the order of their devices.
    """

    def host_of(self, device: int) -> int: ...

    def devices_of(self, host: int) -> range: ...


class Piece(msgspec.Struct, frozen=True):
    """One box of elements that one host sends to one host (perhaps itself)."""

    number: int  # unique within the move; sender and receiver compute the same
    sender: int
    receiver: int
    source: int  # virtual device of the source's place
    targets: tuple[int, ...]  # virtual devices of the target's place
    start: tuple[int, ...]  # where the box starts in the whole array
    shape: tuple[int, ...]
    nbytes: int


def sends(source: Layout, target: Layout, host: int, hosts: Hosts) -> list[Piece]:
    """Return all pieces that this host sends, also those to itself, sorted by receiver, then number."""
    return sorted(_Move(source, target, hosts).sent_by(host), key=lambda piece: (piece.receiver, piece.number))


def receives(source: Layout, target: Layout, host: int, hosts: Hosts) -> list[Piece]:
    """Return all pieces that this host receives, also those from itself, sorted by sender, then number."""
    return sorted(_Move(source, target, hosts).received_by(host), key=lambda piece: (piece.sender, piece.number))


def numbered(sources: Layouts, targets: Layouts) -> Iterator[tuple[int, Layout, Layout]]:
    """Of arrays that go as one: what the numbers of its pieces are counted from, source and target of each."""
    first = 0
    for source, target in zip(sources, targets, strict=True):
        yield first, source, target
        first += target.place.size * _shard_count(source)


def of_each(sources: Layouts, targets: Layouts, find: Callable[[Layout, Layout], Found]) -> Iterator[tuple[int, Found]]:
    """Of arrays that go as one: what the numbers of its pieces are counted from, and what is found of its source and
    target: once for all that are alike, since the trees of models have many of these."""
    alike: dict[tuple[Layout, Layout], Found] = {}
    for first, source, target in numbered(sources, targets):
        if (source, target) not in alike:
            alike[source, target] = find(source, target)
        yield first, alike[source, target]


def sends_by_host(sources: Layouts, targets: Layouts, host: int, hosts: Hosts) -> tuple[tuple[int, int, int], ...]:
    """Return (receiver, number, nbytes) of each piece that this host sends, in the form that OpenSend takes."""
    found = [
        (piece.receiver, first + piece.number, piece.nbytes)
        for first, pieces in of_each(sources, targets, partial(sends, host=host, hosts=hosts))
        for piece in pieces
    ]
    return tuple(sorted(found))


def receives_by_host(sources: Layouts, targets: Layouts, host: int, hosts: Hosts) -> tuple[tuple[int, int, int], ...]:
    """Return (sender, number, nbytes) of each piece that this host receives, in the form that OpenRecv takes."""
    found = [
        (piece.sender, first + piece.number, piece.nbytes)
        for first, pieces in of_each(sources, targets, partial(receives, host=host, hosts=hosts))
        for piece in pieces
    ]
    return tuple(sorted(found))


def all_pieces(
    sources: Layouts, targets: Layouts, receivers: Iterable[int], hosts: Hosts
) -> list[tuple[int, int, int, int]]:
    """Return (sender, receiver, number, nbytes) of each piece that these hosts receive."""
    moves = list(of_each(sources, targets, partial(_Move, hosts=hosts)))
    found = []
    for host in receivers:
        pieces = {move: list(move.received_by(host)) for move in dict.fromkeys(move for _, move in moves)}
        found += [
            (piece.sender, host, first + piece.number, piece.nbytes) for first, move in moves for piece in pieces[move]
        ]
    return found


@lru_cache(maxsize=4096)
def _shard_count(layout: Layout) -> int:
    return Shards(layout).count


@lru_cache(maxsize=4096)
def shard_bytes(layout: Layout) -> int:
    """Return the bytes that the array takes on each device of its place."""
    return prod(Shards(layout).size) * ITEM_BYTES[layout.dtype]


@lru_cache(maxsize=4096)
def canonical(layout: Layout) -> Layout:
    """Return a normal form: two layouts have the same one exactly if they put the same box on each device.

    Mesh axes of extent 1 are dropped. Neighbouring mesh axes that split one dimension in sequence, or that both
    replicate, become one axis.
    """
    splits = [(-1, 0)] * len(layout.mesh)  # by axis: the dimension that it splits, and its rank there
    for dimension, axes in enumerate(layout.sharding.dims):
        rank = 0
        for axis in axes:
            if layout.mesh[axis] > 1:
                splits[axis] = (dimension, rank)
                rank += 1
    mesh: list[int] = []
    merged: list[tuple[int, int]] = []  # by axis of the new mesh: as `splits`
    last: tuple[int, int] | None = None
    for axis, extent in enumerate(layout.mesh):
        if extent == 1:
            continue
        dimension, rank = splits[axis]
        if last is not None and (last == (dimension, rank - 1) or last[0] == dimension == -1):
            mesh[-1] *= extent
        else:
            mesh.append(extent)
            merged.append((dimension, rank))
        last = (dimension, rank)
    dims = tuple(
        tuple(
            axis for _, axis in sorted((rank, axis) for axis, (split, rank) in enumerate(merged) if split == dimension)
        )
        for dimension in range(len(layout.shape))
    )
    sharding = type(layout.sharding)(dims if any(dims) else ())
    return Layout(layout.shape, layout.dtype, layout.place, tuple(mesh), sharding)


def is_local(source: Layout, target: Layout) -> bool:
    """Whether each device already holds its target shard, because the target only splits the source further.

    The caller has checked that both layouts have the same place.
    """
    if source.mesh != target.mesh:
        return False
    held = source.sharding.dims or ((),) * len(source.shape)
    wanted = target.sharding.dims or ((),) * len(target.shape)
    return all(mine == other[: len(mine)] for mine, other in zip(held, wanted, strict=True))


class Shards:
    """The arithmetic of one layout: from virtual device to (shard, replica) and back, and from shard to box."""

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
        """Return, for each dimension, the range of shards of `other` that overlap this shard."""
        return [
            range(part * size // theirs, -(-(part + 1) * size // theirs))
            for part, size, theirs in zip(shard, self.size, other.size, strict=True)
        ]

    def box(self, shard: Index, other: Shards, theirs: Index) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return start and shape of the overlap of `shard` with the shard `theirs` of `other`."""
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
    """One move: lists the pieces that any given host sends or receives."""

    def __init__(self, source: Layout, target: Layout, hosts: Hosts) -> None:
        self._from, self._to = Shards(source), Shards(target)
        self._item = ITEM_BYTES[source.dtype]
        self._empty = prod(source.shape) == 0
        self._hosts = hosts
        self._source, self._target = source.place, target.place
        # host -> shard of the source (of the target) -> the host's virtual devices with that shard, ascending
        self._sources_by_host: dict[int, dict[Index, list[int]]] = {}
        self._targets_by_host: dict[int, dict[Index, list[int]]] = {}

    def sent_by(self, host: int) -> Iterator[Piece]:
        if self._empty:
            return
        yield from self._local_pieces(host)
        for shard, devices in self._source_shards(host).items():
            ranges = self._from.meeting(shard, self._to)
            askers = self._to.replicas * prod(map(len, ranges))
            for device in devices:
                replica, replicas = self._from.replica_of(device), self._from.replicas
                for rank in range(-(-replica * askers // replicas), -(-(replica + 1) * askers // replicas)):
                    place, their_replica = divmod(rank, self._to.replicas)
                    theirs = _unrank(place, ranges)
                    asker = self._to.device(theirs, their_replica)
                    receiver = self._hosts.host_of(self._target.device(asker))
                    targets = self._target_shards(receiver)[theirs]
                    if targets[0] == asker and shard not in self._source_shards(receiver):
                        yield self._piece((host, receiver), device, shard, targets, theirs)

    def received_by(self, host: int) -> Iterator[Piece]:
        if self._empty:
            return
        yield from self._local_pieces(host)
        for mine, targets in self._target_shards(host).items():
            their_replica = self._to.replica_of(targets[0])
            for shard in product(*self._to.meeting(mine, self._from)):
                if shard in self._source_shards(host):
                    continue
                ranges = self._from.meeting(shard, self._to)
                askers = self._to.replicas * prod(map(len, ranges))
                rank = _rank(mine, ranges) * self._to.replicas + their_replica
                device = self._from.device(shard, rank * self._from.replicas // askers)
                sender = self._hosts.host_of(self._source.device(device))
                yield self._piece((sender, host), device, shard, targets, mine)

    def _local_pieces(self, host: int) -> Iterator[Piece]:
        """Yield the pieces that the host takes from itself.

        A device takes a source shard from itself if it holds it, else from the host's first device that does.
        """
        held = self._source_shards(host)
        for mine, targets in self._target_shards(host).items():
            for shard in product(*self._to.meeting(mine, self._from)) if held else ():
                here = {self._source.device(device): device for device in held.get(shard, ())}
                if here:
                    for asker in targets:
                        device = here.get(self._target.device(asker), held[shard][0])
                        yield self._piece((host, host), device, shard, (asker,), mine)

    def _piece(self, ends: tuple[int, int], device: int, shard: Index, targets: Sequence[int], theirs: Index) -> Piece:
        start, shape = self._from.box(shard, self._to, theirs)
        number = targets[0] * self._from.count + self._from.ordinal(shard)
        nbytes = prod(shape) * self._item
        return Piece(number, *ends, device, tuple(targets), start, shape, nbytes)

    def _source_shards(self, host: int) -> dict[Index, list[int]]:
        found = self._sources_by_host.get(host)
        if found is None:
            found = _by_shard(self._from, self._source, self._hosts.devices_of(host))
            self._sources_by_host[host] = found
        return found

    def _target_shards(self, host: int) -> dict[Index, list[int]]:
        found = self._targets_by_host.get(host)
        if found is None:
            found = _by_shard(self._to, self._target, self._hosts.devices_of(host))
            self._targets_by_host[host] = found
        return found


def _by_shard(shards: Shards, place: Place, devices: range) -> dict[Index, list[int]]:
    found: dict[Index, list[int]] = {}
    for virtual in sorted(index for device in devices if (index := virtual_index(place, device)) >= 0):
        found.setdefault(shards.shard_of(virtual), []).append(virtual)
    return found


def virtual_index(place: Place, device: int) -> int:
    """Return the virtual index of this physical device in the place, or -1 if it is not there."""
    before = 0
    for grid in place.grids:
        index = _grid_index(grid, device)
        if index >= 0:
            return before + index
        before += grid.size
    return -1


def _grid_index(grid: Grid, device: int) -> int:
    """Return the index of this device in the grid, or -1 if it is not there.

    It finds the digits by descending stride. That is exact for a block of a torus, where a stride is longer than
    everything that the shorter strides span. Grids of devices that were picked otherwise have a table.
    """
    table = _table(grid)
    if table is not None:
        return table.get(device, -1)
    rest, index = device - grid.base, 0
    if rest < 0:
        return -1
    for axis in sorted(range(len(grid.shape)), key=lambda axis: (-grid.strides[axis], -grid.shape[axis])):
        if grid.shape[axis] > 1:
            digit = min(rest // grid.strides[axis], grid.shape[axis] - 1)
            rest -= digit * grid.strides[axis]
            index += digit * prod(grid.shape[axis + 1 :])
    return index if rest == 0 else -1


@lru_cache(maxsize=4096)
def _table(grid: Grid) -> dict[int, int] | None:
    """The index of each device; None: the digits by descending stride are exact."""
    span = 0
    for stride, extent in sorted((s, e) for s, e in zip(grid.strides, grid.shape, strict=True) if e > 1):
        if stride <= span:
            return {device: index for index, device in enumerate(grid.devices())}
        span += stride * (extent - 1)
    return None


def _read(device: int, axes: list[tuple[int, int]]) -> int:
    """Return the number whose digits, major first, are the virtual device's coordinates on these mesh axes."""
    found = 0
    for extent, stride in axes:
        found = found * extent + device // stride % extent
    return found


def _write(number: int, axes: list[tuple[int, int]]) -> int:
    """Invert `_read`: return the part of a virtual device's index that these mesh axes contribute."""
    found = 0
    for extent, stride in reversed(axes):
        number, digit = divmod(number, extent)
        found += digit * stride
    return found


def _rank(index: Index, ranges: list[range]) -> int:
    """Return the row-major position of this index in the product of the ranges."""
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

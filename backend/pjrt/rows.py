"""Counts a sparse exchange: how many rows of this host's shards go to which shard of the target, and on which hosts.

The first word of each row (see `shard_io`) is the shard to which the row goes; a row with a negative one stays.
Where a shard has replicas, the first replica sends it. Piece `s * targets + t` holds the rows of source shard s
for target shard t; it goes to every host that has shard t. Neighbours: `store`, `shard_io`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from core.model import Hosts, Index, Layout, Shards, virtual_index

from ..contents import shard_io
from ..devices import Array

Piece = tuple[int, int, int]  # (receiver, piece, bytes)


def sent_by(layout: Layout, mine: Sequence[int]) -> list[Index]:
    """The shards that this host sends."""
    shards, found = Shards(layout), dict[Index, None]()
    for device in mine:
        virtual = virtual_index(layout.place, device)
        if virtual >= 0 and shards.replica_of(virtual) == 0:
            found[shards.shard_of(virtual)] = None
    return list(found)


def counted(
    source: Layout, target: Layout, held: Mapping[Index, Array], mine: Sequence[int], hosts: Hosts
) -> tuple[Piece, ...]:
    """What this host, with the devices `mine`, sends. Raises ContentsMismatch if a row names no shard of the target."""
    if len(source.shape) != 2 or source.dtype != "int32":
        raise shard_io.ContentsMismatch(
            f"rows of {source.dtype}{list(source.shape)} do not say where they go: a sparse exchange takes "
            "int32[rows, words], whose first word says so"
        )
    shards, wanted = Shards(source), Shards(target)
    receivers = [_hosts_of(target, wanted, ordinal, hosts) for ordinal in range(wanted.count)]
    found: list[Piece] = []
    for index in sent_by(source, mine):
        to = held[index][:, 0]
        if to.size and int(to.max()) >= wanted.count:
            raise shard_io.ContentsMismatch(f"dest names shard {int(to.max())}, but there are only {wanted.count}")
        numbers = np.bincount(to[to >= 0], minlength=wanted.count)
        nbytes = held[index].itemsize * held[index].shape[1]
        found += [
            (host, shards.ordinal(index) * wanted.count + ordinal, int(number) * nbytes)
            for ordinal, number in enumerate(numbers)
            if number
            for host in receivers[ordinal]
        ]
    return tuple(sorted(found))


def _hosts_of(target: Layout, shards: Shards, ordinal: int, hosts: Hosts) -> list[int]:
    index = shard_io.index_of(shards, ordinal)
    replicas = (shards.device(index, replica) for replica in range(shards.replicas))
    return sorted({hosts.host_of(target.place.device(virtual)) for virtual in replicas})

"""Which pieces of a transfer concern this host: `resharding` plans moves; here are whole buffers, to and
from clients.

A buffer that a client puts or gets travels as whole shards: piece k is shard k of the array, row-major
over the parts into which its sharding cuts it. A Get takes each distinct shard once, from the lowest host
that has it; a Put gives each host each distinct shard that it has.
"""

from __future__ import annotations

from itertools import product

from ..model import (
    Hosts,
    Index,
    Layout,
    Place,
    Shards,
    Spans,
    device_spans,
    shard_bytes,
    spans,
    virtual_index,
)

Piece = tuple[int, int, int]  # (the other end: a host, or -client; piece; bytes)


def to_client(layout: Layout, client: int, host: int, hosts: Hosts) -> tuple[Piece, ...]:
    """What this host sends: the shards that no lower host has."""
    shards = Shards(layout)
    lowest = [
        shard for shard in _here(layout, shards, host, hosts) if _lowest(layout, shards, shard, hosts) == host
    ]
    return _whole(layout, shards, lowest, client)


def from_client(layout: Layout, client: int, host: int, hosts: Hosts) -> tuple[Piece, ...]:
    """What this host receives: every shard that it has, once."""
    shards = Shards(layout)
    return _whole(layout, shards, _here(layout, shards, host, hosts), client)


def senders_to_client(layout: Layout, hosts: Hosts) -> Spans:
    """The hosts for which `to_client` is not empty. Host numbers rise with device numbers."""
    shards = Shards(layout)
    if shards.count == 1:
        return spans.one(hosts.host_of(device_spans(layout.place)[0][0]))
    every = product(*map(range, shards.parts))
    return spans.of({_lowest(layout, shards, shard, hosts) for shard in every})


def hosts_of(place: Place, hosts: Hosts) -> tuple[int, ...]:
    return tuple(sorted({hosts.host_of(device) for device in place.devices()}))


def _whole(layout: Layout, shards: Shards, which: list[Index], client: int) -> tuple[Piece, ...]:
    nbytes = shard_bytes(layout)
    return tuple((-client, piece, nbytes) for piece in sorted(map(shards.ordinal, which)))


def _here(layout: Layout, shards: Shards, host: int, hosts: Hosts) -> list[Index]:
    virtual = [virtual_index(layout.place, device) for device in hosts.devices_of(host)]
    return list(dict.fromkeys(shards.shard_of(device) for device in virtual if device >= 0))


def _lowest(layout: Layout, shards: Shards, shard: Index, hosts: Hosts) -> int:
    replicas = (shards.device(shard, replica) for replica in range(shards.replicas))
    return min(hosts.host_of(layout.place.device(virtual)) for virtual in replicas)

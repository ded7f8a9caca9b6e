"""Lists the pieces that a host sends or receives for a client's get or put. (`resharding` does this for moves.)

A buffer that a client puts or gets travels as whole shards. Piece k is shard k of the array, row-major over the parts
into which its sharding cuts it. A Get takes each distinct shard once, from the lowest host that has it. A Put gives
each host each distinct shard that the host has.
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

Piece = tuple[int, int, int]  # (other end: a host, or -client; number of the piece; bytes)


def to_client(layout: Layout, client: int, host: int, hosts: Hosts) -> tuple[Piece, ...]:
    """Return the pieces that this host sends for a Get: the shards that no lower host has."""
    shards = Shards(layout)
    lowest = [
        shard for shard in _here(layout, shards, host, hosts) if _lowest(layout, shards, shard, hosts) == host
    ]
    return _whole(layout, shards, lowest, client)


def from_client(layout: Layout, client: int, host: int, hosts: Hosts) -> tuple[Piece, ...]:
    """Return the pieces that this host receives for a Put: every shard that it has, once."""
    shards = Shards(layout)
    return _whole(layout, shards, _here(layout, shards, host, hosts), client)


def senders_to_client(layout: Layout, hosts: Hosts) -> Spans:
    """Return the hosts for which `to_client` is not empty."""
    shards = Shards(layout)
    if shards.count == 1:  # the lowest device is on the lowest host
        return spans.one(hosts.host_of(device_spans(layout.place)[0][0]))
    all_shards = product(*map(range, shards.parts))
    return spans.of({_lowest(layout, shards, shard, hosts) for shard in all_shards})


def hosts_of(place: Place, hosts: Hosts) -> tuple[int, ...]:
    return tuple(sorted({hosts.host_of(device) for device in place.devices()}))


def _whole(layout: Layout, shards: Shards, indices: list[Index], client: int) -> tuple[Piece, ...]:
    """Return one piece for each of these shards."""
    nbytes = shard_bytes(layout)
    return tuple((-client, piece, nbytes) for piece in sorted(map(shards.ordinal, indices)))


def _here(layout: Layout, shards: Shards, host: int, hosts: Hosts) -> list[Index]:
    """Return the distinct shards that this host has."""
    virtual = [virtual_index(layout.place, device) for device in hosts.devices_of(host)]
    return list(dict.fromkeys(shards.shard_of(device) for device in virtual if device >= 0))


def _lowest(layout: Layout, shards: Shards, shard: Index, hosts: Hosts) -> int:
    """Return the lowest host that has this shard."""
    replicas = (shards.device(shard, replica) for replica in range(shards.replicas))
    return min(hosts.host_of(layout.place.device(virtual)) for virtual in replicas)

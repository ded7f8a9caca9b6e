"""Where the rows of a sparse exchange go when the program does not say: evenly from every shard to every target."""

from __future__ import annotations

from core.model import Hosts, Layout, Shards, shard_bytes, virtual_index

Piece = tuple[int, int, int]  # (receiving host, piece, bytes)


def even_rows(host: int, source: Layout | None, target: Layout, hosts: Hosts) -> tuple[Piece, ...]:
    """What this host's shards send; where a shard has replicas, the first replica sends it."""
    if source is None:
        return ()
    shards = Shards(source)
    mine: dict[int, None] = {}
    for device in hosts.devices_of(host):
        at = virtual_index(source.place, device)
        if at >= 0:
            shard = shards.shard_of(at)
            if shards.device(shard, 0) == at:
                mine[shards.ordinal(shard)] = None
    devices = [target.place.device(at) for at in range(target.place.size)]
    nbytes = max(1, shard_bytes(source) // len(devices))
    return tuple(
        sorted(
            (hosts.host_of(device), shard * len(devices) + at, nbytes)
            for shard in mine
            for at, device in enumerate(devices)
        )
    )

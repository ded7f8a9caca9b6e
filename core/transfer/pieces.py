"""Lists the pieces that a host sends or receives for a client's get or put. (`resharding` does this for moves.)

A buffer that a client puts or gets travels as whole shards. Piece k is shard k of the array, row-major over the parts
into which its sharding cuts it. A Put gives each host each distinct shard that the host has. A Get takes each distinct
shard once, or only one of them, from the lowest device that has it. Lower devices are on lower hosts, so that is the
lowest host too.

Which device sends which shard is worked out in one pass over the devices and remembered (`_senders`). A host then
looks at its own devices only, and the client at the shards only.
"""

from functools import lru_cache

import msgspec

from ..model import Hosts, Layout, Place, Shards, Spans, shard_bytes, spans, virtual_index

# Layouts for which `_senders` is remembered. An entry is as large as its layout has distinct shards: at 2048, 500 kB.
KEPT = 128

ALL = -1  # shards
Piece = tuple[int, int, int]  # (other end: a host, or -client; number of the piece; bytes)


def to_client(layout: Layout, client: int, host: int, hosts: Hosts, only: int = ALL) -> tuple[Piece, ...]:
    """Return the pieces that this host sends for a Get: the shards that no lower device has. `only`: a shard."""
    shards = _senders_of(layout).shards
    mine = [shards[device] for device in hosts.devices_of(host) if device in shards]
    if only != ALL:
        mine = [only] if only in mine else []
    return _whole(layout, mine, client) if mine else ()


def from_hosts(layout: Layout, hosts: Hosts, only: int = ALL) -> tuple[Piece, ...]:
    """Return the pieces that a client receives for a Get, from all hosts, the lowest host first."""
    nbytes, senders = shard_bytes(layout), _senders_of(layout)
    if only != ALL:
        return ((hosts.host_of(senders.lowest[only]), only, nbytes),) if only in senders.lowest else ()
    found = sorted([(hosts.host_of(device), shard) for device, shard in senders.shards.items()])
    return tuple([(host, shard, nbytes) for host, shard in found])


def senders_to_client(layout: Layout, hosts: Hosts, only: int = ALL) -> Spans:
    """Return the hosts for which `to_client` is not empty."""
    if only != ALL:
        return spans.of([host for host, _, _ in from_hosts(layout, hosts, only)])
    devices = _senders_of(layout).devices
    return spans.normal((hosts.host_of(low), hosts.host_of(high - 1) + 1) for low, high in devices)


def from_client(layout: Layout, client: int, host: int, hosts: Hosts) -> tuple[Piece, ...]:
    """Return the pieces that this host receives for a Put: every shard that it has, once."""
    shards = Shards(layout)
    virtual = [virtual_index(layout.place, device) for device in hosts.devices_of(host)]
    here = dict.fromkeys(shards.shard_of(device) for device in virtual if device >= 0)
    return _whole(layout, [shards.ordinal(shard) for shard in here], client)


def hosts_of(place: Place, hosts: Hosts) -> tuple[int, ...]:
    return tuple(sorted({hosts.host_of(device) for device in place.devices()}))


def _whole(layout: Layout, pieces: list[int], client: int) -> tuple[Piece, ...]:
    nbytes = shard_bytes(layout)
    return tuple([(-client, piece, nbytes) for piece in sorted(pieces)])


class Senders(msgspec.Struct, frozen=True, eq=False):
    """The devices that send for a Get: of each shard, the lowest device that has it."""

    shards: dict[int, int]  # device -> number of the shard that it sends
    lowest: dict[int, int]  # the other way round
    devices: Spans


def _senders_of(layout: Layout) -> Senders:
    """The sizes of the array do not matter, so arrays of all sizes share an answer."""
    split = tuple([axis for axes in layout.sharding.dims for axis in axes])
    return _senders(layout.place, layout.mesh, split)


@lru_cache(maxsize=KEPT)
def _senders(place: Place, mesh: tuple[int, ...], split: tuple[int, ...]) -> Senders:
    """`split`: the mesh axes that split the array, major first, those of its first dimension before the others."""
    having = sorted(zip(place.devices(), _shard_numbers(mesh, split), strict=True), reverse=True)
    lowest = {shard: device for device, shard in having}  # the last one stays
    return Senders({device: shard for shard, device in lowest.items()}, lowest, spans.of(lowest.values()))


def _shard_numbers(mesh: tuple[int, ...], split: tuple[int, ...]) -> list[int]:
    """Return the number of the shard of each virtual device."""
    # By axis: how much the number grows along it. It does not grow along axes that replicate.
    weights = [0] * len(mesh)
    weight = 1
    for axis in reversed(split):
        weights[axis] = weight
        weight *= mesh[axis]
    numbers = [0]
    for weight, extent in zip(weights, mesh, strict=True):
        numbers = [number + step * weight for number in numbers for step in range(extent)]
    return numbers

"""Views on simulated devices: buffers that share the memory of others, checked against what their client named."""

from __future__ import annotations

from core.protocol.effects import MakeView
from tests.invariants import observations as o

from . import contents
from .devices import Buffer, Fabric


def make_view(fabric: Fabric, host: int, command: MakeView, digest: int, wanted: dict[int, tuple[int, int]]) -> None:
    """`digest`: of the view's contents. `wanted`: by device, the digest of the source whose shard should be there, and
    which of its shards."""
    mine = fabric.hosts[host]
    devices = tuple(d for d in contents.devices(command.layout.place) if d in mine.devices)
    view = Buffer(command.buffer, command.layout, 0, devices, mine.devices)
    view.digest, view.here = digest, True
    sources = {number: mine.buffers.get(number) for _, number in command.shards}
    if tuple(sorted(devices)) != tuple(device for device, _ in command.shards):
        fabric.complain(f"view {view.number} on host {host} is not of its devices: {command.shards}")
    for device, number in command.shards:
        source = sources[number]
        if source is None or not source.here:
            fabric.complain(f"view {view.number} shares buffer {number}, not on the devices of host {host}")
        elif (source.read(), contents.shard_on(source.layout, device)) != wanted[device]:
            view.digest = contents.torn("viewed", view.number, device)
    view.shares = tuple(source for source in sources.values() if source is not None)
    mine.buffers[view.number] = view
    if fabric.observe:
        fabric.observe(o.BufferMade(host, view.number))
        for source in view.shares:
            fabric.observe(o.BufferUsed(host, source.number, f"view {view.number}"))

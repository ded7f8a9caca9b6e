"""Planted bugs of what leaves the devices for hosts' memory and disks."""

from __future__ import annotations

from typing import Any

from core.controller.state import State
from core.host.host_moves import Moves
from core.host.local_buffers import HostBuffers
from core.memory import Spill

from .draw import DAMAGED, DISKS
from .planting import Patch, bug


@bug("a disk without an end", "more is written to a disk than there is room for", first=DISKS)
def _(put: Patch) -> None:
    put(State, "host_disk", lambda self, hosts: 1 << 40)


@bug("two at a time", "a copy to the disk does not wait for the one before", first=DISKS)
def _(put: Patch) -> None:
    good = Moves._disk_free

    def at_once(self: Moves, copy: Any) -> Any:
        good(self, copy)
        return ()

    put(Moves, "_disk_free", at_once)


@bug("in memory, so it says", "a host does not say after a restart what is on its disk", first=DISKS)
def _(put: Patch) -> None:
    good = HostBuffers.held

    def held(self: HostBuffers) -> Any:
        for buffer in self._state.buffers.values():
            buffer.on_disk = False
        return good(self)

    put(HostBuffers, "held", held)


@bug("full for ever", "what comes back from a disk is counted there still", first=DISKS)
def _(put: Patch) -> None:
    good = Spill._free_host

    def free(self: Spill, buffer: Any) -> None:
        if buffer.on_disk:
            buffer.on_host = False
        good(self, buffer)

    put(Spill, "_free_host", free)


@bug("sent all the same", "a host does not say that it could not read what it sends", first=DAMAGED)
def _(put: Patch) -> None:
    put(Moves, "source_lost", lambda self, event: None)

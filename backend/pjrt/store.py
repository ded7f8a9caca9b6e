"""A host's buffers: the arrays on its devices, those that were moved to host memory, and how much memory they take.

Buffers are made, read, donated and freed in the enqueueing thread, in the order of core's commands. So a buffer is
freed after everything that was enqueued with it. Contents for other hosts are read in any thread.
Neighbours: `launcher`, `completions`, `arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.model import Index, Layout, shard_bytes

from ..devices import Array
from . import device_arrays
from .buckets import Packed, packed
from .worker_thread import WorkerThread
from .world import WorldMembership


class MissingBuffer(LookupError):
    """A buffer that is not on this host, or that is empty."""


class StoredBuffer:
    """A buffer. Its contents are in `array` (on devices) or in `host` (spilled, or between two worlds). If
    neither, it is void because its maker failed, or reserved for contents that will come."""

    __slots__ = ("_array", "_packed", "beside", "host", "layout", "lies", "nbytes", "reason", "spilled")

    def __init__(self, layout: Layout, lies: Any, array: Any = None) -> None:
        self.layout = layout
        self.lies = lies  # its sharding in this world; equal shardings are the same object
        self._packed: Packed | None = None
        self._array: Any = array
        self.host: Mapping[Index, Array] | None = None
        self.nbytes = shard_bytes(layout)  # on each device of its place
        self.reason = ""  # why it is void
        self.spilled = False  # core has moved it to `host`
        # if it is a token: what was read of a checkpoint, until it is copied to devices
        self.beside: Any = None

    @property
    def array(self) -> Any:
        return self._array if self._packed is None else self._packed.whole()

    @array.setter
    def array(self, array: Any) -> None:
        self._array, self._packed = array, None

    @property
    def whole(self) -> Any:
        """The array, if there is one and nothing has to be made for it."""
        return self._array

    @property
    def on_devices(self) -> bool:
        return self._array is not None or self._packed is not None

    def pack(self, rows: int) -> None:
        """Keeps only a bucket of rows; `rows`: valid rows of each shard."""
        found = packed(self._array, rows) if self._array is not None else None
        if found is not None:
            self._array, self._packed = None, found
            self.nbytes = math.ceil(shard_bytes(self.layout) * found.share)


class Store:
    def __init__(self, world: WorldMembership, line: WorkerThread) -> None:
        self._world, self._line = world, line
        self._buffers: dict[int, StoredBuffer] = {}
        self.bytes: dict[int, int] = {}  # by device, in buffers
        self.peak = 0
        self.spilled = 0

    def __len__(self) -> int:
        return len(self._buffers)

    # --- in the enqueueing thread ---------------------------------------------------------------------------

    def room(self, number: int, layout: Layout) -> None:
        """Reserves a buffer for contents that will come."""
        self._keep(number, StoredBuffer(layout, self._world.sharding(layout)))

    def literal(self, number: int, layout: Layout, contents: bytes) -> None:
        array = device_arrays.of_literal(self._world, layout, contents)
        self._keep(number, StoredBuffer(layout, self._world.sharding(layout), array))

    def fill(self, number: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        buffer = self._buffers.get(number)
        if buffer is not None:  # else it has been freed
            buffer.array = device_arrays.to_devices(self._world, layout, shards)

    def spoil(self, number: int, reason: str) -> None:
        buffer = self._buffers.get(number)
        if buffer is not None:
            buffer.reason, buffer.array = reason, None

    def made(self, number: int, layout: Layout, array: Any) -> StoredBuffer:
        """Stores an output of a launch; its contents are a future. None: the gang could not be launched."""
        buffer = StoredBuffer(layout, self._world.sharding(layout), array)
        if array is None:
            buffer.reason = "its maker was not launched"
        self._keep(number, buffer)
        return buffer

    def get(self, number: int) -> StoredBuffer | None:
        return self._buffers.get(number)

    def placeholder(self, layout: Layout) -> Any:
        return device_arrays.zeros(self._world, layout)

    def free(self, number: int) -> None:
        """Frees a buffer. The devices keep its memory until what was enqueued with it has ended."""
        buffer = self._buffers.pop(number, None)
        if buffer is not None:
            self._account(buffer, -1)
            buffer.array = buffer.host = buffer.beside = None

    def pack(self, buffer: StoredBuffer, rows: int) -> None:
        """Packs an output whose maker has ended, and made `rows` rows in its largest shard."""
        if buffer.on_devices:  # and not freed or spilled meanwhile
            self._account(buffer, -1)
            buffer.pack(rows)
            self._account(buffer, 1)

    def _unpack(self, buffer: StoredBuffer) -> None:
        if buffer.on_devices:
            self._account(buffer, -1)
            buffer.array, buffer.nbytes = buffer.array, shard_bytes(buffer.layout)
            self._account(buffer, 1)

    def spill(self, number: int) -> tuple[StoredBuffer, Any]:
        """The array that is to be copied; `spilled_to` takes the copy."""
        buffer = self._buffers.get(number)
        if buffer is None or not buffer.on_devices:
            raise MissingBuffer(f"buffer {number} is not on this host's devices")
        self._unpack(buffer)
        return buffer, buffer.array

    def spilled_to(self, number: int, shards: Mapping[Index, Array]) -> None:
        buffer = self._buffers.get(number)
        if buffer is not None:
            self._account(buffer, -1)
            buffer.host, buffer.array, buffer.spilled = shards, None, True
            self._account(buffer, 1)

    def restore(self, number: int) -> Any:
        buffer = self._buffers.get(number)
        if buffer is None or buffer.host is None or not buffer.spilled:
            raise MissingBuffer(f"buffer {number} is not in this host's memory")
        buffer.array = device_arrays.to_devices(self._world, buffer.layout, buffer.host)
        self._account(buffer, -1)
        buffer.host, buffer.spilled = None, False
        self._account(buffer, 1)
        return buffer.array

    # --- change of the world --------------------------------------------------------------------------------

    def to_host(self) -> None:
        """Copies all arrays to host memory, before the backend is dropped. Arrays that are not ready are lost."""
        for buffer in self._buffers.values():
            if not buffer.on_devices:
                continue
            self._unpack(buffer)
            if is_there(buffer.array):
                try:
                    buffer.host = device_arrays.to_host(self._world, buffer.layout, buffer.array, copies=True)
                except Exception as error:
                    buffer.reason = str(error)
            else:
                buffer.reason = "it was not done when its world ended"
            buffer.array = None

    def to_devices(self) -> None:
        """Copies all buffers to the devices of the new world. Buffers that lie on other devices, too, are lost."""
        for buffer in self._buffers.values():
            buffer.lies = self._world.sharding(buffer.layout) if self._world.reaches(buffer.layout) else None
            if buffer.host is None or buffer.spilled:
                continue
            if buffer.lies is not None:
                buffer.array = device_arrays.to_devices(self._world, buffer.layout, buffer.host)
            else:
                buffer.reason = "other hosts' shards of it are lost"
            buffer.host = None

    # --- in any thread ----------------------------------------------------------------------------------------

    def shards(self, number: int) -> Mapping[Index, Array]:
        """A buffer's contents; blocks until they exist. Raises MissingBuffer, or its maker's error."""
        buffer = self._buffers.get(number)
        if buffer is None or (not buffer.on_devices and buffer.host is None and not buffer.reason):
            self._line.ask(lambda: None)  # all earlier commands are done now
            buffer = self._buffers.get(number)
        if buffer is None:
            raise MissingBuffer(f"buffer {number} is not on this host")
        array, host = buffer.array, buffer.host
        if array is not None:
            return device_arrays.to_host(self._world, buffer.layout, array)
        if host is not None:
            return host
        raise MissingBuffer(
            f"buffer {number} holds nothing: {buffer.reason or 'its contents have not arrived'}"
        )

    def at_hand(self, number: int, here: bool) -> bool:
        """Whether `shards` would not wait: the contents are in host memory. `here`: those on devices are, too."""
        buffer = self._buffers.get(number)
        if buffer is None:
            return False
        array = buffer.whole
        return buffer.host is not None if array is None else here and is_there(array)

    # --- inside -------------------------------------------------------------------------------------------------

    def _keep(self, number: int, buffer: StoredBuffer) -> None:
        self.free(number)
        self._buffers[number] = buffer
        self._account(buffer, 1)

    def _account(self, buffer: StoredBuffer, sign: int) -> None:
        here = self._world.here(buffer.layout.place)
        if buffer.spilled:
            self.spilled += sign * buffer.nbytes * len(here)
            return
        for device in here:
            self.bytes[device] = self.bytes.get(device, 0) + sign * buffer.nbytes
            self.peak = max(self.peak, self.bytes[device])


def is_there(array: Any) -> bool:
    """Whether an array is ready, without waiting for it."""
    try:
        return bool(array.is_ready())
    except Exception:
        return True  # it has failed, which its reader will learn


def ready(array: Any) -> None:
    array.block_until_ready()

"""A host's buffers: the arrays on its devices, those that were spilled, and how much memory they take.

Buffers are made, read, donated and freed in the enqueueing thread, in the order of core's commands. So a buffer is
freed after everything that was enqueued with it. Contents for other hosts are read in any thread. What one launch made
is one record (`made_together`) as long as it is read, donated and freed together; any other use of one takes it out.
Neighbours: `stored_buffers`, `launcher`, `completions`.
"""

import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from core.model import Index, Layout, Place, RangeTable, shard_bytes

from ..devices import Array
from . import device_arrays
from .disk import DiskShards
from .stored_buffers import OutputRow, StoredBuffer, StoredOutputs
from .worker_thread import WorkerThread
from .world import WorldMembership


class MissingBuffer(LookupError):
    """A buffer that is not on this host, or that is empty."""


class Store:
    def __init__(self, world: WorldMembership, line: WorkerThread) -> None:
        self._world, self._line = world, line
        self._buffers: dict[int, StoredBuffer] = {}
        self._together: RangeTable[StoredOutputs] = RangeTable()
        self._lock = threading.RLock()  # of these two, where several may be taken apart
        self._came: dict[int, Mapping[Index, Array]] = {}  # contents that are not on devices yet
        self.bytes: dict[int, int] = {}  # by device, in buffers
        self.spilled = self.on_disk = 0  # bytes that have left the devices, by where they are

    def __len__(self) -> int:
        return len(self._buffers) + self._together.names()

    # --- in the enqueueing thread ---------------------------------------------------------------------------

    def room(self, number: int, layout: Layout) -> None:
        """Reserves a buffer for contents that will come."""
        self._keep(number, StoredBuffer(layout, self._world.sharding(layout)))

    def literal(self, number: int, layout: Layout, contents: bytes) -> None:
        array = device_arrays.of_literal(self._world, layout, contents)
        self._keep(number, StoredBuffer(layout, self._world.sharding(layout), array))

    def fill(self, number: int, layout: Layout, shards: Mapping[Index, Array]) -> None:
        try:
            buffer = self.get(number)
            if buffer is not None:  # else it has been freed
                buffer.array = device_arrays.to_devices(self._world, layout, shards)
        finally:
            if self._came.get(number) is shards:
                del self._came[number]

    def spoil(self, number: int, reason: str) -> None:
        buffer = self.get(number)
        if buffer is not None:
            buffer.spoil(reason)

    def made(self, number: int, layout: Layout, array: Any) -> StoredBuffer:
        """Stores an output of a launch; its contents are a future. None: the gang could not be launched."""
        buffer = StoredBuffer(layout, self._world.sharding(layout), array)
        if array is None:
            buffer.reason = "its maker was not launched"
        self._keep(number, buffer)
        return buffer

    def made_together(self, first: int, row: OutputRow, at: int, arrays: list[Any]) -> StoredOutputs:
        """Stores several outputs of a launch, from the one at `at` of its row on."""
        found = StoredOutputs(first, row, at, arrays, [], self._lock)
        self.free(first, found.count)
        with self._lock:
            self._together.put(first, found)
        assert row.place is not None
        self._account(row.place, found.nbytes)
        return found

    def view(self, number: int, layout: Layout, shards: Sequence[tuple[int, int]]) -> None:
        """Stores an array each of whose shards is that of another buffer: the same memory. `shards`: this host's
        devices, and the buffer whose shard there it is."""
        buffer, sources = StoredBuffer(layout, self._world.sharding(layout)), dict[int, StoredBuffer]()
        for device, source in shards:
            held = self.get(source)
            if held is None:
                buffer.reason = f"buffer {source}, of which it has a shard, is not on this host"
            else:
                sources[device] = held
        buffer.shares(sources)
        if not buffer.reason:
            self._share(buffer)
        self._keep(number, buffer)

    def _share(self, view: StoredBuffer) -> None:
        """Makes a view's array of those that its sources have now."""
        sources = dict.fromkeys(view.sources.values())
        arrays = {source: source.array for source in sources}
        void = next((source for source in sources if arrays[source] is None), None)
        if void is not None:
            view.reason = void.reason or "the contents of its shards have not arrived"
            return
        shards = {device: arrays[source] for device, source in view.sources.items()}
        view.array = device_arrays.of_shards(self._world, view.layout, shards)
        if view.reason:  # a source was spoilt meanwhile
            view.array = None

    def arrays(self, first: int, count: int, lies: Sequence[Any]) -> list[Any] | None:
        """The arrays of several buffers, if all are here and lie so. None: look at each by itself."""
        found: list[Any] = []
        with self._lock:
            for name, held in self._together.parts(first, count):
                if held is None:
                    one = self._buffers.get(name)
                    array = None if one is None or one.lies is not lies[len(found)] else one.array
                    if array is None:
                        return None
                    found.append(array)
                else:
                    wanted = lies[len(found) : len(found) + held.count]
                    if held.reason or not all(map(operator.is_, held.lies, wanted)):
                        return None
                    found += held.arrays
        return found

    # --- in any thread -------------------------------------------------------------------------------------

    def came(self, number: int, shards: Mapping[Index, Array]) -> None:
        """A buffer's contents have come, and `fill` follows; whoever reads them need not wait for it."""
        self._came[number] = shards

    def get(self, number: int) -> StoredBuffer | None:
        found = self._buffers.get(number)
        if found is None and self._together:
            with self._lock:
                held = self._together.alone(number)
                if held is None:
                    return self._buffers.get(number)
                self._together.drop(number)
                found = self._buffers[number] = held.alone()
        return found

    # --- in the enqueueing thread ---------------------------------------------------------------------------

    def placeholder(self, layout: Layout) -> Any:
        return device_arrays.zeros(self._world, layout)

    def free(self, first: int, count: int = 1) -> None:
        """Frees buffers. The devices keep their memory until what was enqueued with it has ended."""
        left = count
        if self._together:
            with self._lock:
                gone = self._together.over(first, count)
                for held in gone:
                    self._together.drop(held.first)
                    assert held.row.place is not None
                    self._account(held.row.place, -held.nbytes)
                    held.clear()
                    left -= held.count
        if not left or (count > 1 and self._buffers.keys().isdisjoint(range(first, first + count))):
            return
        for number in range(first, first + count):
            buffer = self._buffers.pop(number, None)
            if buffer is not None:
                self._count(buffer, -1)
                buffer.let_go()

    def pack(self, buffer: StoredBuffer, rows: int) -> None:
        """Packs an output whose maker has ended, and made `rows` rows in its largest shard."""
        if buffer.on_devices:  # and not freed or spilled meanwhile
            self._count(buffer, -1)
            buffer.pack(rows)
            self._count(buffer, 1)

    def _unpack(self, buffer: StoredBuffer) -> None:
        if buffer.on_devices:
            self._count(buffer, -1)
            buffer.array, buffer.nbytes = buffer.array, shard_bytes(buffer.layout)
            self._count(buffer, 1)

    def spill(self, number: int) -> tuple[StoredBuffer, Any]:
        """The array that is to be copied; `spilled_to` takes the copy."""
        buffer = self.get(number)
        if buffer is None or not buffer.on_devices:
            raise MissingBuffer(f"buffer {number} is not on this host's devices")
        self._unpack(buffer)
        return buffer, buffer.array

    def spilled_to(self, number: int, shards: Mapping[Index, Array]) -> None:
        buffer = self._buffers.get(number)
        if buffer is not None:
            self._count(buffer, -1)
            buffer.host, buffer.array, buffer.spilled = shards, None, True
            self._count(buffer, 1)

    def spilled_shards(self, number: int) -> Mapping[Index, Array]:
        buffer = self._buffers.get(number)
        if buffer is None or buffer.host is None or not buffer.spilled:
            raise MissingBuffer(f"buffer {number} is neither in this host's memory nor on its disk")
        return buffer.host

    def restore(self, number: int, shards: Mapping[Index, Array]) -> Any:
        """`shards`: what `spilled_shards` has given, in memory."""
        self.spilled_shards(number)
        buffer = self._buffers[number]
        buffer.array = device_arrays.to_devices(self._world, buffer.layout, shards)
        self._count(buffer, -1)
        buffer.host, buffer.spilled = None, False
        self._count(buffer, 1)
        return buffer.array

    # --- change of the world --------------------------------------------------------------------------------

    def to_host(self) -> None:
        """Copies all arrays to host memory, before the backend is dropped. Arrays that are not ready are lost."""
        self._take_apart()
        for buffer in self._buffers.values():
            if buffer.sources:  # a view again afterwards
                buffer.array = None
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

    def _take_apart(self) -> None:
        for name in [name for first, held in self._together.items() for name in range(first, first + held.count)]:
            self.get(name)

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
        for buffer in self._buffers.values():
            if buffer.sources and not buffer.reason:
                if buffer.lies is not None:
                    self._share(buffer)
                else:
                    buffer.reason = "other hosts' shards of it are lost"

    # --- in any thread ----------------------------------------------------------------------------------------

    def shards(self, number: int) -> Mapping[Index, Array]:
        """A buffer's contents; blocks until they exist. Raises MissingBuffer, or its maker's error."""
        came = self._came.get(number)
        if came is not None:
            return came
        buffer = self.get(number)
        if buffer is None or (not buffer.on_devices and buffer.host is None and not buffer.reason):
            self._line.ask(lambda: None)  # all earlier commands are done now
            buffer = self.get(number)
        if buffer is None:
            raise MissingBuffer(f"buffer {number} is not on this host")
        array, host = buffer.array, buffer.host
        if array is not None:
            return device_arrays.to_host(self._world, buffer.layout, array)
        if host is not None:
            return dict(host) if isinstance(host, DiskShards) else host
        raise MissingBuffer(f"buffer {number} holds nothing: {buffer.reason or 'its contents have not arrived'}")

    def at_hand(self, number: int, here: bool) -> bool:
        """Whether `shards` would not wait: the contents are in host memory. `here`: those on devices are, too."""
        if number in self._came:
            return True
        buffer = self.get(number)
        if buffer is None:
            return False
        array = buffer.whole
        if array is None:
            return buffer.host is not None and not isinstance(buffer.host, DiskShards)
        return here and is_there(array)

    # --- inside -------------------------------------------------------------------------------------------------

    def _keep(self, number: int, buffer: StoredBuffer) -> None:
        self.free(number)
        self._buffers[number] = buffer
        self._count(buffer, 1)

    def _count(self, buffer: StoredBuffer, sign: int) -> None:
        place = buffer.layout.place
        if not buffer.spilled:
            self._account(place, sign * buffer.nbytes)
        elif isinstance(buffer.host, DiskShards):
            self.on_disk += sign * buffer.nbytes * len(self._world.here(place))
        else:
            self.spilled += sign * buffer.nbytes * len(self._world.here(place))

    def _account(self, place: Place, nbytes: int) -> None:
        """So many more bytes are on each device of this place."""
        for device in self._world.here(place):
            self.bytes[device] = self.bytes.get(device, 0) + nbytes


def is_there(array: Any) -> bool:
    """Whether an array is ready, without waiting for it."""
    try:
        return bool(array.is_ready())
    except Exception:
        return True  # it has failed, which its reader will learn


def ready(array: Any) -> None:
    array.block_until_ready()

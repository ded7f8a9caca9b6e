"""What a host's store keeps: a buffer, or several that one launch made, as one record.

    StoredBuffer     one: on devices, in host memory, void, or reserved; or a view, whose shards are other buffers'
    StoredOutputs    several with consecutive names, all on devices; one that is used alone is taken out of them
    OutputRow        the layouts of what a code makes, with all that is derived from them, once for all launches

Neighbours: `store`, `launcher`, `completions`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from core.model import Index, Layout, Place, shard_bytes

from ..devices import Array


class StoredBuffer:
    """A buffer. Its contents are in `array` (on devices) or in `host` (spilled, maybe to disk, or between two worlds).
    If neither, it is void because its maker failed, or reserved for contents that will come."""

    __slots__ = (
        "_array", "_packed", "beside", "host", "layout", "lies", "nbytes", "reason", "sources", "spilled", "views",
    )  # fmt: skip

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
        self.sources: Mapping[int, StoredBuffer] = {}  # of a view: by device, the buffer whose shard there it has
        self.views: list[StoredBuffer] = []  # that have shards of this one

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

    def spoil(self, reason: str) -> None:
        """It holds nothing, for this reason, and neither do its views."""
        self.array, self.reason = None, reason
        for view in tuple(self.views):  # the enqueueing thread adds some
            view.spoil(reason)

    def shares(self, sources: Mapping[int, StoredBuffer]) -> None:
        """It is a view of these, by device: it takes no memory of its own."""
        self.sources, self.nbytes = sources, 0
        for source in dict.fromkeys(sources.values()):
            source.views.append(self)

    def let_go(self) -> None:
        """It keeps no array alive any more."""
        self.array = self.host = self.beside = None
        for source in dict.fromkeys(self.sources.values()):
            source.views.remove(self)
        self.sources = {}

    def pack(self, rows: int) -> None:
        """Keeps only a bucket of rows; `rows`: valid rows of each shard."""
        found = packed(self._array, rows) if self._array is not None else None
        if found is not None:
            self._array, self._packed = None, found
            self.nbytes = math.ceil(shard_bytes(self.layout) * found.share)


class OutputRow:
    """`place`: that of all of them; None if they differ, and then they are kept one by one."""

    __slots__ = ("layouts", "lies", "place", "sizes")

    def __init__(self, layouts: Sequence[Layout], sharding: Callable[[Layout], Any]) -> None:
        self.layouts = tuple(layouts)
        self.lies = tuple(map(sharding, layouts))
        self.sizes = tuple(map(shard_bytes, layouts))  # on each device
        places = {layout.place for layout in layouts}
        self.place: Place | None = places.pop() if len(places) == 1 else None


class StoredOutputs:
    """Outputs of a launch, from the one at `at` of its row on; `first` is its name. `family`: all that was made of the
    outputs of this launch when they were taken apart; spoiling one spoils all, since they have one maker. `lock`: the
    store's, under which they are taken apart."""

    __slots__ = ("_lock", "arrays", "at", "count", "family", "first", "lies", "nbytes", "reason", "row")

    def __init__(
        self, first: int, row: OutputRow, at: int, arrays: list[Any], family: list[StoredBuffer | StoredOutputs],
        lock: threading.RLock,
    ) -> None:  # fmt: skip
        self.first, self.row, self.at, self.arrays, self.count = first, row, at, arrays, len(arrays)
        end = at + self.count
        self.lies, self.nbytes = row.lies[at:end], sum(row.sizes[at:end])
        self.reason = ""  # why they are void
        self.family, self._lock = family, lock
        family.append(self)

    def part(self, at: int) -> StoredOutputs:
        """Keep the first `at`, return the others."""
        rest = StoredOutputs(self.first + at, self.row, self.at + at, self.arrays[at:], self.family, self._lock)
        rest.reason = self.reason
        del self.arrays[at:]
        self.count, self.lies, self.nbytes = at, self.lies[:at], self.nbytes - rest.nbytes
        return rest

    def alone(self) -> StoredBuffer:
        """The only one that is left, as a buffer of its own."""
        found = StoredBuffer(self.row.layouts[self.at], self.lies[0], self.arrays[0])
        found.reason = self.reason
        self.family.append(found)
        self.clear()
        return found

    def spoil(self, reason: str) -> None:
        """Nothing that this launch made holds anything, for this reason."""
        with self._lock:
            for each in self.family:
                if isinstance(each, StoredBuffer):
                    each.spoil(reason)
                else:
                    each.arrays, each.reason = [None] * len(each.arrays), reason

    def clear(self) -> None:
        """They are free: no array is kept alive here."""
        self.arrays = []
        self.family.remove(self)


# --- irregular outputs, cut to a bucket of rows --------------------------------------------------------------------


class Packed:
    """Shards of an array, cut to a bucket of rows."""

    __slots__ = ("_bound", "_parts", "_shape", "_sharding", "share")

    def __init__(self, array: Any, bucket: int) -> None:
        self._shape, self._sharding = array.shape, array.sharding
        shards = [part.data for part in array.addressable_shards]
        self._bound = shards[0].shape[0]
        self._parts: Sequence[Any] = [_cut(part, bucket) for part in shards]
        self.share = bucket / self._bound  # the part of the whole array's memory that it takes

    def whole(self) -> Any:
        parts = [_padded(part, self._bound) for part in self._parts]
        return jax.make_array_from_single_device_arrays(self._shape, self._sharding, parts)


def packed(array: Any, rows: int) -> Packed | None:
    """The array cut to a bucket; `rows`: valid rows of its largest shard. None: that would save too little."""
    shards = array.addressable_shards
    if not array.ndim or not shards or jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return None
    bucket = 1 << max(0, rows - 1).bit_length()
    return Packed(array, bucket) if 2 * bucket <= shards[0].data.shape[0] else None


@partial(jax.jit, static_argnums=1)
def _cut(part: Any, rows: int) -> Any:
    return part[:rows]


@partial(jax.jit, static_argnums=1)
def _padded(part: Any, rows: int) -> Any:
    return jnp.pad(part, ((0, rows - part.shape[0]), *((0, 0),) * (part.ndim - 1)))

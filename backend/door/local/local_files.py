"""Arrays of this process's devices to files, and back: what `LocalDevices` does for `save` and `restore`, in a thread.

The session takes no request meanwhile: so nothing takes an array's memory while it is written from there, and no second
copy of all of them is needed. Neighbours: `local_devices`; `backend.checkpoint.zarr2`, the files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from backend.checkpoint import READERS, SMALLEST, ArrayEntry, CheckpointError, chunk_of, folders, zarr2, zarrs

from ..protocol import Box, StatusCode, dtype_of
from ..session import ArrayFiles, ArrayType, StatusError

OPTION = "--persist of the door"


def write(files: ArrayFiles, arrays: Sequence[Any]) -> None:
    """Blocks until all is on disk. `arrays`: JAX's. Raises StatusError, or the error of an array."""
    entries = list(map(_entry, files.names, files.types))
    alone = [entry.chunk == entry.shape for entry in entries]

    def pieces() -> Iterator[zarrs.Piece]:
        for number, (array, array_type) in enumerate(zip(arrays, files.types, strict=True)):
            if not prod(array_type.shape):
                continue
            shards = ((box, np.asarray(array._arrays[shard])) for shard, box in _parts(array_type).items())
            for box, contents in [_together(array_type, shards)] if alone[number] else shards:
                yield number, box, contents

    nonce, folder = os.urandom(8).hex(), _told(lambda: folders.below(Path(files.root), files.folder, OPTION))
    wanted = zarr2.while_wanted(pieces(), files.over, files.seconds)
    _told(lambda: zarr2.write(folder, nonce, entries, wanted, host=0, threads=READERS))
    _told(lambda: zarr2.seal(folder, nonce, entries))


def _together(array_type: ArrayType, shards: Iterable[tuple[Box, Any]]) -> tuple[Box, Any]:
    """A small array is one file, as it is for whoever has one device."""
    found = np.empty(array_type.shape, dtype_of(array_type.kind))
    for box, contents in shards:
        found[box] = contents
    return tuple(slice(0, size) for size in array_type.shape), found


def read(files: ArrayFiles) -> list[list[Any]]:
    """For each array, what each of its devices gets. Raises StatusError."""
    entries = list(map(_entry, files.names, files.types))
    wanted: list[tuple[ArrayEntry, dict[tuple[int, ...], Box]]] = [
        (entry, {(shard,): box for shard, box in _parts(array_type).items()})
        for entry, array_type in zip(entries, files.types, strict=True)
    ]
    folder = _told(lambda: folders.below(Path(files.root), files.folder, OPTION))
    found = _told(lambda: zarr2.read(folder, wanted))
    made = []
    for shards, array_type, (_, boxes) in zip(found, files.types, wanted, strict=True):
        by_box = {str(box): shards[index] for index, box in boxes.items()}
        made.append([by_box[str(box)] for box in array_type.sharding.boxes(array_type.shape)])
    return made


def _parts(array_type: ArrayType) -> dict[int, Box]:
    """Different shards, each by the number of one that has it."""
    found: dict[str, tuple[int, Box]] = {}
    for number, box in enumerate(array_type.sharding.boxes(array_type.shape)):
        found.setdefault(str(box), (number, box))
    return dict(found.values())


def _entry(name: str, array_type: ArrayType) -> ArrayEntry:
    dtype = dtype_of(array_type.kind)
    assert dtype is not None
    small = prod(array_type.shape) * dtype.itemsize <= SMALLEST and 0 not in array_type.shape
    chunk = array_type.shape if small else chunk_of(array_type.shard_shape, dtype.name, (), (1,))
    return ArrayEntry(name, dtype.name, array_type.shape, (), chunk)


def _told(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except CheckpointError as error:
        raise StatusError(StatusCode.FAILED_PRECONDITION, str(error)) from None

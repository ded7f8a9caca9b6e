"""Arrays that core has sent to this host's disk, because its memory has no room for them.

They are this process's, and nobody else reads them: a folder of its own, and a file for each shard, written and checked
like the chunks of a checkpoint (CRC-32C).

    SpillFolder     writes; its folder is made when the first array comes
    DiskShards      the shards of one array, read when they are asked for; the files go when nobody has it any more

Neighbours: `store` keeps them where others are in memory; `pjrt_devices` writes and reads in its copying thread.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np

from core.model import Index

from ..checkpoint import CheckpointError, files
from ..contents import shard_io
from ..devices import Array
from ..scratch_folder import ScratchFolder, sweep

USUAL = "/var/tmp"  # on a disk on most systems, where /tmp is in memory


class LostOnDisk(RuntimeError):
    """Contents that were written to disk and cannot be read any more."""


class SpillFolder:
    """`below`: the folder in which its own is made; None: the usual one. `later`: does something in another thread."""

    def __init__(self, below: Path | None, later: Callable[[Callable[[], None]], None]) -> None:
        self.below = below or Path(USUAL if os.access(USUAL, os.W_OK) else os.environ.get("TMPDIR", "/tmp"))
        self._later, self._numbers = later, count()
        self._own: ScratchFolder | None = None

    def write(self, shards: Mapping[Index, Array], dtype: str) -> DiskShards:
        """Raises OSError, or CheckpointError if what checks contents is not installed."""
        files.crc32c()
        if self._own is None:
            self.below.mkdir(parents=True, exist_ok=True)
            self._own = ScratchFolder("spilled", self.below)
        folder = Path(self._own.name)
        written: dict[Index, str] = {}
        try:
            with files.held(folder.resolve()) as at:
                for index, shard in shards.items():
                    name = written[index] = str(next(self._numbers))
                    files.write_chunk(at, name, shard)
        except BaseException:
            _remove(folder, written.values())
            raise
        found = DiskShards(folder, written, next(iter(shards.values())).shape, dtype)
        weakref.finalize(found, self._later, lambda: _remove(folder, written.values())).atexit = False
        return found

    def tidy(self) -> None:
        """Removes what processes that were killed have left."""
        sweep(self.below)

    def close(self) -> None:
        if self._own is not None:
            self._own.cleanup()


class DiskShards(Mapping[Index, Array]):
    def __init__(self, folder: Path, names: Mapping[Index, str], size: tuple[int, ...], dtype: str) -> None:
        self._folder, self._names, self._size, self._dtype = folder, names, size, dtype

    def __getitem__(self, index: Index) -> Array:
        """Raises LostOnDisk."""
        made, name = shard_io.empty(self._size, self._dtype), self._names[index]
        raw = made.reshape(-1).view(np.uint8)
        try:
            files.read_chunk(self._folder, name, raw.size, "", raw)
        except files.Damaged as damaged:
            raise LostOnDisk(f"its contents were on disk, and {self._folder / name} {damaged.what}") from None
        return made

    def __iter__(self) -> Iterator[Index]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def why(folder: Path, error: OSError | CheckpointError) -> str:
    """Why nothing could be written, and what to do."""
    text = str(error) if isinstance(error, CheckpointError) else f"{folder}: {error.strerror}"
    return f"it cannot write arrays to its disk ({text}), and keeps them in memory; mend that and restart its agent"


def _remove(folder: Path, names: Iterable[str]) -> None:
    """A host goes on if its disk can only be read any more."""
    for name in names:
        with suppress(OSError):
            (folder / name).unlink()

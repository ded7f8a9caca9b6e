"""Arrays that core has sent to this host's disk, because its memory has no room for them.

They are this process's, and nobody else reads them: a folder of its own, and a file for each shard, written and checked
like the chunks of a checkpoint (CRC-32C). A process that is killed leaves its folder; the next that starts removes it.

    SpillFolder     writes; its folder is made when the first array comes
    DiskShards      the shards of one array, read when they are asked for; the files go when nobody has it any more

Neighbours: `store` keeps them where others are in memory; `pjrt_devices` writes and reads in its copying thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np

from core.model import Index

from ..checkpoint import CheckpointError, files, leftovers
from ..contents import shard_io
from ..devices import Array

PREFIX = "seaway-spilled-"
USUAL = "/var/tmp"  # on a disk on most systems, where /tmp is in memory


class LostOnDisk(RuntimeError):
    """Contents that were written to disk and cannot be read any more."""


class SpillFolder:
    """`below`: the folder in which its own is made; None: the usual one. `later`: does something in another thread."""

    def __init__(self, below: Path | None, later: Callable[[Callable[[], None]], None]) -> None:
        self.below = below or Path(USUAL if os.access(USUAL, os.W_OK) else os.environ.get("TMPDIR", "/tmp"))
        self._later, self._numbers = later, count()
        self._own: Path | None = None
        self._mark: leftovers.Mark | None = None

    def write(self, shards: Mapping[Index, Array], dtype: str) -> DiskShards:
        """Raises OSError, or CheckpointError if what checks contents is not installed."""
        files.crc32c()
        folder = self._own or self._make()
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

    def _make(self) -> Path:
        self.below.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.below))
        self._mark, self._own = leftovers.Mark(folder), folder
        self.tidy()
        return folder

    def tidy(self) -> None:
        """Removes what processes that were killed have left. Others may do so at the same time."""
        for other in self.below.glob(f"{PREFIX}*"):
            with suppress(OSError):
                ours = not other.is_symlink() and other.lstat().st_uid == os.geteuid()
                if ours and not leftovers.alive(other, time.time()):
                    shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


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

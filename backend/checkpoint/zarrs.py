"""The files of a checkpoint: zarr v3, by tensorstore, so that zarr or tensorstore can read them without Seaway.

Contents are little-endian and not compressed. A key of `jax.random` is two words of 32 bits, in a last dimension of
their own; the group's attributes say which arrays are keys. In memory, shards are numpy arrays, and a key is one
number of eight bytes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from core.model import Index

from ..contents import shard_io
from .chunks import Box, grid
from .documents import ArrayEntry, CheckpointError, Discarded, Request
from .folders import ROOT_FILE, settle

KEYS = "key<fry>"
WORDS = 2
FORMAT = 1
SEEN = 5.0  # seconds until another host's files are visible here, on shared file systems
Array = np.ndarray[Any, Any]
Piece = tuple[int, Box, Array]  # (number of the entry, where in the array, contents)


def tensorstore() -> Any:
    """The tensorstore module. Raises CheckpointError if it is not installed."""
    try:
        import tensorstore as found
    except ImportError:
        raise CheckpointError(
            "checkpoints need tensorstore, which is not installed here; on every host: pip install 'seaway[checkpoint]'"
        ) from None
    return found


# --- arrays as files ----------------------------------------------------------------------------------------------


def disk_look(dtype: str, shape: Sequence[int]) -> tuple[str, list[int]]:
    return ("uint32", [*shape, WORDS]) if dtype == KEYS else (dtype, list(shape))


def spec_of(folder: Path, entry: ArrayEntry) -> dict[str, Any]:
    dtype, shape = disk_look(entry.dtype, entry.shape)
    chunk = [*entry.chunk, WORDS] if entry.dtype == KEYS else list(entry.chunk)
    nothing: Any = [0, 0] if dtype.startswith("complex") else False if dtype == "bool" else 0
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(folder / entry.name)},
        "metadata": {
            "shape": shape, "data_type": dtype, "fill_value": nothing,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        },
        "store_data_equal_to_fill_value": True,  # so that a missing file always means that it was not written
    }  # fmt: skip


def write(folder: Path, entries: Sequence[ArrayEntry], pieces: Sequence[Piece], *, first: bool) -> None:
    """Writes pieces, and blocks until they are on disk. `first`: also writes the arrays' metadata. Raises
    CheckpointError, or Discarded if the folder was removed meanwhile."""
    ts = tensorstore()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {_said(error)}") from None
    try:
        if first:
            described = [ts.open(spec_of(folder, entry), create=True, open=True) for entry in entries]
            for each in described:
                each.result()
        opened: dict[int, Any] = {}
        for number in dict.fromkeys(number for number, _, _ in pieces):
            # The metadata are not read: another host may be writing them at this time.
            opened[number] = ts.open(
                spec_of(folder, entries[number]), open=True, assume_metadata=True
            ).result()
        waiting = [
            opened[number][_on_disk(entries[number], box)].write(
                _as_words(entries[number], array), can_reference_source_data_indefinitely=True
            )
            for number, box, array in pieces
        ]
        for each in waiting:
            each.result()
    except (OSError, ValueError) as error:
        kind = Discarded if _is_gone(folder, error) else CheckpointError
        raise kind(f"checkpoint {folder}: {_said(error)}") from None


def _is_gone(folder: Path, error: Exception) -> bool:
    """Whether the files being written were removed. The folder may exist again: other writers create it anew."""
    return isinstance(error, FileNotFoundError) or str(error).startswith("NOT_FOUND") or not folder.is_dir()


def read(folder: Path, wanted: Sequence[tuple[ArrayEntry, Mapping[Index, Box]]]) -> list[dict[Index, Array]]:
    """Reads boxes of arrays into memory, as shards; blocks. Raises CheckpointError."""
    ts = tensorstore()
    _check(folder, [entry for entry, _ in wanted])
    try:
        stores = [
            ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / entry.name)}})
            for entry, _ in wanted
        ]
        found: list[dict[Index, Array]] = []
        waiting = []
        for (entry, boxes), opening in zip(wanted, stores, strict=True):
            store, shards = opening.result(), dict[Index, Array]()
            for index, box in boxes.items():
                dtype, shape = disk_look(entry.dtype, [part.stop - part.start for part in box])
                room = shard_io.empty(shape, dtype)
                if room.size:
                    waiting.append(ts.array(room, copy=False).write(store[_on_disk(entry, box)]))
                shards[index] = room.view(np.uint64)[..., 0] if entry.dtype == KEYS else room
            found.append(shards)
        for each in waiting:
            each.result()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {folder}: {_said(error)}") from None
    return found


def _on_disk(entry: ArrayEntry, box: Box) -> Any:
    return (*box, slice(None)) if entry.dtype == KEYS else box or ...


def _as_words(entry: ArrayEntry, array: Array) -> Array:
    if entry.dtype != KEYS:
        return array
    return np.ascontiguousarray(array).view(np.uint32).reshape(*array.shape, WORDS)


def _said(error: Exception) -> str:
    """The system's error text, without the source locations that tensorstore adds."""
    return str(error).partition(" [source locations=")[0].strip() or type(error).__name__


# --- whole checkpoints --------------------------------------------------------------------------------------------


def finish(folder: Path, request: Request, entries: Sequence[ArrayEntry]) -> None:
    """All hosts have reported their parts: checks that all files exist, and writes the group's metadata. Raises
    CheckpointError."""
    until = time.monotonic() + SEEN
    missing = _missing(folder, entries)
    while missing and time.monotonic() < until:
        time.sleep(0.05)
        missing = _missing(folder, entries)
    if missing:
        raise CheckpointError(
            f"checkpoint {folder}: {missing} is missing, though all hosts have written their parts; do all hosts "
            f"see the same folder?"
        )
    arrays = {entry.name: {"dtype": entry.dtype, "shape": entry.shape} for entry in entries}
    described = {
        "zarr_format": 3, "node_type": "group",
        "attributes": {
            "seaway": {"format": FORMAT, "step": request.step, "save": request.nonce, "arrays": arrays}
        },
    }  # fmt: skip
    try:
        with (folder / ROOT_FILE).open("w", encoding="utf-8") as file:
            json.dump(described, file)
            file.flush()
            os.fsync(file.fileno())
        settle(folder)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None


def _missing(folder: Path, entries: Sequence[ArrayEntry]) -> str:
    """A file that is missing or has the wrong size; "" if there is none."""
    for entry in entries:
        dtype, _ = disk_look(entry.dtype, entry.shape)
        words = WORDS if entry.dtype == KEYS else 1
        nbytes = prod(entry.chunk) * words * shard_io.numpy_dtype(dtype).itemsize
        tail = ["0"] if entry.dtype == KEYS else []
        files = product(*map(range, grid(entry.shape, entry.chunk)))
        names = ["/".join(["c", *map(str, where), *tail]) for where in files]
        for name, wanted in [(ROOT_FILE, -1), *((name, nbytes) for name in names if prod(entry.shape))]:
            try:
                size = (folder / entry.name / name).stat().st_size
            except OSError:
                size = -2
            if size == -2 or wanted not in (-1, size):
                return f"{entry.name}/{name}"
    return ""


def described(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of the arrays of a complete step. Raises CheckpointError."""
    try:
        told = json.loads((folder / ROOT_FILE).read_bytes())["attributes"]["seaway"]
        if told["format"] != FORMAT:
            raise CheckpointError(
                f"checkpoint {folder}: format {told['format']} is unknown to this version; a newer Seaway wrote it"
            )
        return {name: (str(each["dtype"]), tuple(each["shape"])) for name, each in told["arrays"].items()}
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {folder}: its {ROOT_FILE} is not that of a Seaway checkpoint ({error})"
        ) from None


def _check(folder: Path, wanted: Sequence[ArrayEntry]) -> None:
    has = described(folder)
    for entry in wanted:
        saved = has.get(entry.name)
        if saved is None:
            others = ", ".join(sorted(has)[:8]) + (", ..." if len(has) > 8 else "")
            raise CheckpointError(
                f"checkpoint {folder}: it has no array {entry.name!r}; it has {others or 'none'}"
            )
        if saved != (entry.dtype, entry.shape):
            raise CheckpointError(
                f"checkpoint {folder}: array {entry.name!r} was saved as {_text(*saved)}, but is requested as "
                f"{_text(entry.dtype, entry.shape)}"
            )


def _text(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"

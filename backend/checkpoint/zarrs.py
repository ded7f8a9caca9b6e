"""The arrays of a checkpoint, in files that any reader of zarr v3 can open without Seaway.

Contents are little-endian and not compressed, and each chunk ends with its checksum (zarr's codec `crc32c`). In memory,
shards are numpy arrays, and a key of `jax.random` is one number of eight bytes. Neighbours: `metadata`, the documents;
`files`, what is checked when a file is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from core.model import Index

from ..contents import shard_io
from . import chunks, files
from .chunks import Box
from .documents import ArrayEntry, CheckpointError, Discarded, Request
from .files import Damaged, crc32c
from .metadata import (
    ROOT_FILE,
    ChunkLayout,
    SavedArray,
    array_document,
    chunk_layout,
    group_document,
    layout_of,
    saved_step,
)

__all__ = ["ROOT_FILE", "Damaged", "Verified", "crc32c", "finish", "read", "verify", "write"]

SEEN = 5.0  # seconds until another host's files are visible here, on shared file systems
NAMED = 1000  # damaged files of an array that are named; there are more chunks than files in a hostile list
Array = np.ndarray[Any, Any]
T = TypeVar("T")
Piece = tuple[int, Box, Array]  # (number of the entry, where in the array, contents)


def write(folder: Path, entries: Sequence[ArrayEntry], pieces: Sequence[Piece], *, first: bool) -> None:
    """Writes pieces, and blocks until they are on disk. `first`: also writes the arrays' documents. Raises
    CheckpointError, or Discarded if the folder was removed meanwhile."""
    documents = {f"{entry.name}/{ROOT_FILE}": array_document(entry) for entry in entries} if first else {}
    write_files(folder, lambda: documents, map(layout_of, entries), pieces)


def write_files(
    folder: Path, documents: Callable[[], Mapping[str, bytes]], layouts: Iterable[ChunkLayout] = (),
    pieces: Iterable[Piece] = (), write_chunk: Callable[[int, str, Array], Any] | None = None,
    threads: int = files.WRITERS,
) -> None:  # fmt: skip
    """Chunks, of which each of `pieces` is one or more, and then documents by their names. Blocks until all of it is on
    disk."""
    known, names, write = list(layouts), list[str](), write_chunk or files.write_chunk

    def chunks_of(at: int) -> Iterator[Callable[[], None]]:
        for number, box, array in pieces:
            layout = known[number]
            for cell in _cells([box], layout.chunk):
                common = _common(box, cell, layout.chunk)
                assert common is not None
                name, part = layout.file(cell), array[common[0]]
                assert part.shape == layout.chunk, f"{name}: a part of a chunk"
                names.append(name)
                yield partial(_done, folder, name, partial(write, at, name, part))

    try:
        with files.held(folder) as at:
            files.in_threads(chunks_of(at), threads)
            texts = documents()
            files.in_threads(
                (partial(_done, folder, name, partial(files.write_document, at, name, texts[name])) for name in texts),
                threads,
            )
            names += texts
            folders = {parent for name in names for parent in _folders(name)}
            for these in (names, sorted(folders)):
                files.in_threads([partial(_done, folder, each, partial(files.settle_in, at, each)) for each in these])
    except OSError as error:
        raise _stopped(folder, "", error) from None


def _folders(name: str) -> list[str]:
    """Those that a file is in, from the one that all are in, `.`, on."""
    parts = name.split("/")[:-1]
    return [".", *("/".join(parts[: count + 1]) for count in range(len(parts)))]


def _done(folder: Path, name: str, work: Callable[[], Any]) -> None:
    try:
        work()
    except OSError as error:
        raise _stopped(folder, f"file {name}: ", error) from None


def _stopped(folder: Path, what: str, error: OSError) -> CheckpointError:
    """If the files were removed, another host says why. Other writers may have created the folder anew."""
    gone = isinstance(error, FileNotFoundError) or not folder.is_dir()
    return (Discarded if gone else CheckpointError)(f"checkpoint {folder}: {what}{error.strerror}")


# --- reading ------------------------------------------------------------------------------------------------------


def read(folder: Path, wanted: Sequence[tuple[ArrayEntry, Mapping[Index, Box]]]) -> list[dict[Index, Array]]:
    """Reads boxes of arrays into memory, as shards. Blocks. Raises CheckpointError."""
    saved = saved_step(folder).arrays
    _check(folder, saved, [entry for entry, _ in wanted])
    layouts = [chunk_layout(folder, entry.name, saved[entry.name]) for entry, _ in wanted]
    return read_shards(folder, wanted, layouts)


def read_shards(
    folder: Path, wanted: Sequence[tuple[ArrayEntry, Mapping[Index, Box]]], layouts: Sequence[ChunkLayout]
) -> list[dict[Index, Array]]:
    """The boxes of each array, which lies as its layout says."""
    found: list[dict[Index, Array]] = []
    for entry, boxes in wanted:
        sizes = {index: [part.stop - part.start for part in box] for index, box in boxes.items()}
        found.append({index: shard_io.empty(size, entry.dtype) for index, size in sizes.items()})

    def work() -> Iterator[Callable[[], None]]:
        for (_, boxes), layout, shards in zip(wanted, layouts, found, strict=True):
            targets = [(box, shards[index]) for index, box in boxes.items() if shards[index].size]
            for cell in _cells([box for box, _ in targets], layout.chunk):
                yield partial(_read_cell, folder, layout, cell, targets)

    files.in_threads(work())
    return found


def _cells(boxes: Sequence[Box], chunk: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The chunks that have a part of these boxes, each once."""
    if not boxes:
        return
    parts = list(zip(*boxes, strict=True))
    low = [min(part.start for part in each) // size for each, size in zip(parts, chunk, strict=False)]
    high = [-(-max(part.stop for part in each) // size) for each, size in zip(parts, chunk, strict=False)]
    for cell in chunks.cells(low, high):
        if any(_common(box, cell, chunk) is not None for box in boxes):
            yield cell


def _common(box: Box, cell: Sequence[int], chunk: Sequence[int]) -> tuple[Box, Box] | None:
    """What a box has of a chunk: (where in the box, where in the chunk)."""
    in_box, in_chunk = [], []
    for part, at, size in zip(box, cell, chunk, strict=True):
        low, high = max(part.start, at * size), min(part.stop, (at + 1) * size)
        if low >= high:
            return None
        in_box.append(slice(low - part.start, high - part.start))
        in_chunk.append(slice(low - at * size, high - at * size))
    return tuple(in_box), tuple(in_chunk)


def _read_cell(folder: Path, layout: ChunkLayout, cell: tuple[int, ...], targets: Sequence[tuple[Box, Array]]) -> None:
    parts = []
    for box, shard in targets:
        common = _common(box, cell, layout.chunk)
        if common is not None:
            inside: Any = (*common[0], ...)  # so that it is a view, even of a single number
            parts.append((shard[inside], common[1]))
    room, _ = parts[0]
    alone = len(parts) == 1 and room.shape == layout.chunk and room.flags.c_contiguous
    content = room if alone else np.empty(layout.chunk, shard_io.numpy_dtype(layout.dtype))
    _read_chunk(folder, layout, cell, content.reshape(-1).view(np.uint8))
    if not alone:
        for room, where in parts:
            room[...] = content[where]


def _read_chunk(folder: Path, layout: ChunkLayout, cell: tuple[int, ...], into: Array | None) -> None:
    files.read_chunk(folder, layout.file(cell), layout.nbytes, layout.sum_of(cell), into, ends=layout.summed)


def _check(folder: Path, has: Mapping[str, SavedArray], wanted: Sequence[ArrayEntry]) -> None:
    for entry in wanted:
        saved = has.get(entry.name)
        if saved is None:
            others = ", ".join(sorted(has)[:8]) + (", ..." if len(has) > 8 else "")
            raise CheckpointError(f"checkpoint {folder}: it has no array {entry.name!r}; it has {others or 'none'}")
        if (saved.dtype, saved.shape) != (entry.dtype, entry.shape):
            raise CheckpointError(
                f"checkpoint {folder}: array {entry.name!r} was saved as {_text(saved)}, but is requested as "
                f"{_text(entry)}"
            )


def _text(array: SavedArray | ArrayEntry) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


# --- whole checkpoints --------------------------------------------------------------------------------------------


def finish(folder: Path, request: Request, entries: Sequence[ArrayEntry]) -> None:
    """All hosts have reported their parts: checks that all files exist, and writes the group's document with their
    checksums. Raises CheckpointError."""
    until = time.monotonic() + SEEN
    layouts = list(map(layout_of, entries))
    sums = {layout.name: [""] * prod(layout.grid) for layout in layouts}

    def look(layout: ChunkLayout, number: int, cell: tuple[int, ...]) -> None:
        text = _seen(partial(files.stored_sum, folder, layout.file(cell), layout.nbytes), until)
        sums[layout.name][number] = text

    try:
        for entry in entries:
            _seen(partial(files.document, folder, f"{entry.name}/{ROOT_FILE}"), until)
        files.in_threads(
            partial(look, layout, number, cell) for layout in layouts for number, cell in enumerate(layout.cells())
        )
    except Damaged as error:
        raise CheckpointError(
            f"checkpoint {folder}: file {error.name} {error.what}, though all hosts have written their parts; do all "
            f"hosts see the same folder?"
        ) from None
    arrays = {
        entry.name: SavedArray(entry.dtype, entry.shape, entry.chunk, "".join(sums[entry.name])) for entry in entries
    }
    write_files(folder, lambda: {ROOT_FILE: group_document(request, arrays)})


def _seen(look: Callable[[], T], until: float) -> T:
    while True:
        try:
            return look()
        except Damaged:
            if time.monotonic() >= until:
                raise
            time.sleep(0.05)


class Verified(NamedTuple):
    """What `verify` has read."""

    arrays: int
    nbytes: int


def verify(folder: Path, damaged: Callable[[str, str], None]) -> Verified:
    """Reads all files of a complete step, a piece at a time. Calls `damaged(file, what)` for each that is missing or
    not as it was written. Raises CheckpointError if the list of its arrays cannot be read."""
    step = saved_step(folder)
    nbytes = 0
    for name, saved in step.arrays.items():
        try:
            layout = chunk_layout(folder, name, saved)
        except Damaged as error:
            damaged(error.name, error.what)
            continue
        named = 0
        for cell in layout.cells():
            try:
                _read_chunk(folder, layout, cell, None)
                nbytes += layout.nbytes
            except Damaged as error:
                damaged(error.name, error.what)
                named += 1
            if named == NAMED:
                damaged(name, f"has more damaged files; {NAMED} of them are named")
                break
    return Verified(len(step.arrays), nbytes)

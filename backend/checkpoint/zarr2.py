"""Arrays as zarr v2, each by itself, in a folder that a program names: what Orbax reads and writes on Cloud Pathways.

    params.w/.zarray        shape, type, chunks, and the checksum of each chunk: any reader of zarr v2 can open it
    params.w/0.1            a chunk: little-endian and not compressed
    .seaway-NONCE-0         checksums of the chunks that a host has written, until `seal`

`write` is each host's; `seal` is one host's, when all have written: only then are there documents, so an array that was
not written to its end is none. Other readers take a chunk without a file for one of zeros; here it is an error. Arrays
of other tools have no checksums, and are read without.
Neighbours: `zarrs`, which reads and writes chunks; `files`, what is checked when a file is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from core.model import ITEM_BYTES, Index

from ..contents import shard_io
from . import files
from .chunks import Box
from .documents import ArrayEntry, CheckpointError
from .files import Damaged, Missing
from .metadata import CODEC, SUMS, ChunkLayout, fits_in, grid_of
from .zarrs import SEEN, Array, Piece, read_shards, write_files

ARRAY, OURS = ".zarray", "seaway"
OTHERS = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int4",
)
FIX = "restore another step, or bring the file back from a copy"
OCDBT = ("manifest.ocdbt", "ocdbt.process_0")  # what there is where Orbax saved in its other format
ELSEWHERE = "restore it without ENABLE_PATHWAYS_PERSISTENCE"
Chunks = dict[str, str]  # checksums by the names of files


class _Sums(msgspec.Struct, forbid_unknown_fields=True):
    """What is ours of an array's document: the checksums of its chunks, in row-major order, eight digits each."""

    crc32c: str


class _Zarray(msgspec.Struct):
    zarr_format: Literal[2]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    order: Literal["C"]
    compressor: Any = None
    filters: Any = None
    dimension_separator: str = "."
    seaway: _Sums | None = None


# --- written ------------------------------------------------------------------------------------------------------


def write(
    folder: Path, nonce: str, entries: Sequence[ArrayEntry], pieces: Iterable[Piece], *, host: int,
    threads: int = files.WRITERS,
) -> None:  # fmt: skip
    """Writes pieces, and blocks until they are on disk. `host`: a number that no other host has. Raises
    CheckpointError, or Discarded if the folder was removed meanwhile."""
    files.crc32c()
    sums: Chunks = {}

    def write_chunk(at: int, name: str, contents: Array) -> None:
        sums[name] = files.write_chunk(at, name, contents, ends=False)

    try:
        files.make_folder(folder)
        with files.held(folder) as at:
            for entry in entries:  # of an array that was there before
                files.remove_in(at, f"{entry.name}/{ARRAY}")
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None
    told = _sums_file(nonce, host)
    write_files(
        folder, lambda: {told: msgspec.json.encode(sums)}, map(_layout_of, entries), pieces, write_chunk, threads
    )


def while_wanted(pieces: Iterable[Piece], over: Callable[[], bool], seconds: float) -> Iterator[Piece]:
    """Ends a save between two files, if nobody waits for it any more. Raises CheckpointError."""
    until = time.monotonic() + seconds
    for piece in pieces:
        if over() or time.monotonic() > until:
            raise CheckpointError(f"the save was given up: its client has gone, or has waited {seconds:g} s for it")
        yield piece


def seal(folder: Path, nonce: str, entries: Sequence[ArrayEntry]) -> None:
    """All hosts have reported their parts: writes the arrays' documents. Raises CheckpointError."""
    layouts = list(map(_layout_of, entries))
    wanted = {layout.file(cell) for layout in layouts for cell in layout.cells()}
    until = time.monotonic() + SEEN
    while wanted - (found := _written(folder, nonce)).keys():
        if time.monotonic() >= until:
            raise CheckpointError(
                f"checkpoint {folder}: {len(wanted - found.keys())} of its {len(wanted)} files are not there, though "
                "all hosts have written their parts; do all hosts see the same folder?"
            )
        time.sleep(0.05)
    documents = {}
    for entry, layout in zip(entries, layouts, strict=True):
        sums = "".join(found[layout.file(cell)] for cell in layout.cells())
        documents[f"{entry.name}/{ARRAY}"] = _document_of(entry, sums)
    write_files(folder, lambda: documents, threads=files.READERS)
    for each in folder.glob(_sums_file(nonce, "*")):
        each.unlink(missing_ok=True)


def _sums_file(nonce: str, host: int | str) -> str:
    return f".{OURS}-{nonce}-{host}"


def _written(folder: Path, nonce: str) -> Chunks:
    """The checksums that are known so far."""
    found: Chunks = {}
    for each in folder.glob(_sums_file(nonce, "*")):
        try:
            found |= msgspec.json.decode(files.document(folder, each.name), type=Chunks)
        except (Damaged, msgspec.MsgspecError):  # it is not all here yet
            continue
    return found


def _layout_of(entry: ArrayEntry) -> ChunkLayout:
    return ChunkLayout(entry.name, entry.dtype, entry.chunk, grid_of(entry.shape, entry.chunk), zarr=2)


def _document_of(entry: ArrayEntry, sums: str) -> bytes:
    return msgspec.json.encode(
        {
            "zarr_format": 2, "shape": entry.shape, "chunks": entry.chunk, "dtype": type_of(entry.dtype), "order": "C",
            "fill_value": None, "compressor": None, "filters": None, "dimension_separator": ".",
            OURS: _Sums(sums),
        }
    )  # fmt: skip


def type_of(dtype: str) -> str:
    """What zarr v2 calls a type of elements. Raises CheckpointError."""
    if dtype in OTHERS:
        return dtype
    found = shard_io.numpy_dtype(dtype) if dtype in ITEM_BYTES else np.dtype(object)
    if found.kind not in "biufc" or found.name != dtype:
        raise CheckpointError(f"arrays of {dtype} have no files in zarr v2: save them as another type")
    return found.str


# --- read ---------------------------------------------------------------------------------------------------------


def read(folder: Path, wanted: Sequence[tuple[ArrayEntry, Mapping[Index, Box]]]) -> list[dict[Index, Array]]:
    """Reads boxes of arrays into memory, as shards. Blocks. Raises CheckpointError."""
    found: dict[str, ChunkLayout] = {}

    def look(entry: ArrayEntry) -> None:
        found[entry.name] = _read_layout(folder, entry)

    try:
        files.in_threads(partial(look, entry) for entry, _ in wanted)
        return read_shards(folder, wanted, [found[entry.name] for entry, _ in wanted])
    except Missing as error:
        raise Damaged(folder, error.name, error.what, _why_missing(folder)) from None
    except Damaged as error:
        raise Damaged(folder, error.name, error.what, FIX) from None


def _why_missing(folder: Path) -> str:
    if not folder.is_dir():
        return "there is no such folder on this host: do all hosts see it?"
    if any((folder / name).exists() for name in OCDBT):
        return f"it was saved with use_ocdbt=True: {ELSEWHERE}"
    return FIX


def _read_layout(folder: Path, entry: ArrayEntry) -> ChunkLayout:
    name = f"{entry.name}/{ARRAY}"
    try:
        told: _Zarray = msgspec.json.decode(files.document(folder, name), type=_Zarray)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(folder, name, f"is not that of an array of zarr v2: {str(error)[:200]}") from None
    if told.compressor or told.filters or told.dimension_separator != ".":
        raise CheckpointError(
            f"checkpoint {folder}: the files of array {entry.name!r} are compressed, or named in another way; "
            f"{ELSEWHERE}"
        )
    if (told.dtype, told.shape) != (type_of(entry.dtype), entry.shape):
        raise CheckpointError(
            f"checkpoint {folder}: array {entry.name!r} was saved as {str(told.dtype)[:40]}{list(told.shape[:8])}, but "
            f"is requested as {entry.dtype}{list(entry.shape)}"
        )
    if not fits_in(entry.shape, told.chunks):
        raise Damaged(folder, name, f"describes chunks of {told.chunks[:8]}")
    grid = grid_of(entry.shape, told.chunks)
    sums = "" if told.seaway is None else told.seaway.crc32c
    if told.seaway is not None and (len(sums) != 8 * prod(grid) or not SUMS.fullmatch(sums)):
        raise Damaged(folder, name, f"has {len(sums) // 8} checksums ({CODEC}) for {prod(grid)} chunks")
    return ChunkLayout(entry.name, entry.dtype, told.chunks, grid, sums, zarr=2)

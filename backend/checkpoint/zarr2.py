"""Arrays as zarr v2, each by itself, in a folder that a program names: what Orbax reads and writes on Cloud Pathways.

    params.w/.zarray        shape, type and chunks: any reader of zarr v2 can open it
    params.w/.zattrs        the checksum of each chunk; until all of them are on disk, that it is being written
    params.w/0.1            a chunk: little-endian and not compressed
    .seaway-NONCE-0         checksums of the chunks that a host has written, until `seal`

`write` is each host's; `seal` is one host's, when all have written. Other readers take a chunk without a file for one
of zeros; here it is an error. Arrays of other tools have no checksums, and are read without.
Neighbours: `zarrs`, which reads and writes chunks; `files`, what is checked when a file is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
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

ARRAY, ATTRIBUTES, OURS = ".zarray", ".zattrs", "seaway"
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
ELSEWHERE = "restore it without ENABLE_PATHWAYS_PERSISTENCE"
Chunks = dict[str, str]  # checksums by the names of files


class _Zarray(msgspec.Struct):
    zarr_format: Literal[2]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    order: Literal["C"]
    compressor: Any = None
    filters: Any = None
    dimension_separator: str = "."


class _Sums(msgspec.Struct, forbid_unknown_fields=True):
    """What is ours of an array's attributes. None: it is being written."""

    crc32c: str | None


# --- written ------------------------------------------------------------------------------------------------------


def write(folder: Path, nonce: str, entries: Sequence[ArrayEntry], pieces: Iterable[Piece], *, host: int) -> None:
    """Writes pieces, and blocks until they are on disk. `host`: a number that no other host has; the one with 0 also
    writes the arrays' documents. Raises CheckpointError."""
    files.crc32c()
    documents = {}
    for entry in entries if not host else ():
        documents[f"{entry.name}/{ARRAY}"] = _document_of(entry)
        documents[f"{entry.name}/{ATTRIBUTES}"] = _attributes(None)
    sums: Chunks = {}

    def write_chunk(folder: Path, name: str, contents: Array) -> None:
        sums[name] = files.write_chunk(folder, name, contents, ends=False)

    _make(folder)
    write_files(folder, documents, map(_layout_of, entries), pieces, write_chunk)
    write_files(folder, {_sums_file(nonce, host): msgspec.json.encode(sums)}, (), (), write_chunk)


def seal(folder: Path, nonce: str, entries: Sequence[ArrayEntry]) -> None:
    """All hosts have reported their parts: writes the checksums to the arrays. Raises CheckpointError."""
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
    sums = ["".join(found[layout.file(cell)] for cell in layout.cells()) for layout in layouts]
    documents = {f"{layout.name}/{ATTRIBUTES}": _attributes(text) for layout, text in zip(layouts, sums, strict=True)}
    write_files(folder, documents, (), (), files.write_chunk)
    for each in folder.glob(_sums_file(nonce, "*")):
        each.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    try:
        files.make_folder(folder)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {error.strerror}") from None


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
    return ChunkLayout(entry.name, entry.dtype, entry.chunk, grid_of(entry.shape, entry.chunk), "", False, zarr=2)


def _attributes(sums: str | None) -> bytes:
    return msgspec.json.encode({OURS: _Sums(sums)})


def _document_of(entry: ArrayEntry) -> bytes:
    return msgspec.json.encode(
        {
            "zarr_format": 2, "shape": entry.shape, "chunks": entry.chunk, "dtype": type_of(entry.dtype), "order": "C",
            "fill_value": None, "compressor": None, "filters": None, "dimension_separator": ".",
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
    found: list[ChunkLayout] = []
    files.in_threads(partial(_add_layout, folder, entry, found) for entry, _ in wanted)
    layouts = {layout.name: layout for layout in found}
    try:
        return read_shards(folder, wanted, [layouts[entry.name] for entry, _ in wanted])
    except Damaged as error:
        raise Damaged(folder, error.name, error.what, FIX) from None


def _add_layout(folder: Path, entry: ArrayEntry, found: list[ChunkLayout]) -> None:
    found.append(_read_layout(folder, entry))


def _read_layout(folder: Path, entry: ArrayEntry) -> ChunkLayout:
    name = f"{entry.name}/{ARRAY}"
    try:
        told: _Zarray = msgspec.json.decode(files.document(folder, name), type=_Zarray)
    except Missing:
        raise Damaged(folder, name, "is missing", f"if it was saved with use_ocdbt=True, {ELSEWHERE}") from None
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise Damaged(folder, name, f"is not that of an array of zarr v2: {str(error)[:200]}", FIX) from None
    if told.compressor or told.filters or told.dimension_separator != ".":
        raise Damaged(folder, name, "describes files that are compressed, or named in another way", ELSEWHERE)
    if (told.dtype, told.shape) != (type_of(entry.dtype), entry.shape):
        raise CheckpointError(
            f"checkpoint {folder}: array {entry.name!r} was saved as {str(told.dtype)[:40]}{list(told.shape[:8])}, but "
            f"is requested as {entry.dtype}{list(entry.shape)}"
        )
    if not fits_in(entry.shape, told.chunks):
        raise Damaged(folder, name, f"describes chunks of {told.chunks[:8]}", FIX)
    grid = grid_of(entry.shape, told.chunks)
    sums = _sums_of(folder, entry.name, prod(grid))
    return ChunkLayout(entry.name, entry.dtype, told.chunks, grid, sums, False, zarr=2)


def _sums_of(folder: Path, array: str, count: int) -> str:
    """`""`: they are another tool's files, of which none are known."""
    name = f"{array}/{ATTRIBUTES}"
    try:
        found: dict[str, msgspec.Raw] = msgspec.json.decode(files.document(folder, name), type=dict[str, msgspec.Raw])
        if OURS not in found:
            return ""
        sums = msgspec.json.decode(found[OURS], type=_Sums).crc32c
    except Missing:
        return ""
    except (ValueError, RecursionError) as error:
        raise Damaged(folder, name, f"is not that of an array of zarr v2: {str(error)[:200]}", FIX) from None
    if sums is None:
        raise Damaged(folder, name, "says that the array was not written to its end", FIX)
    if len(sums) != 8 * count or not SUMS.fullmatch(sums):
        raise Damaged(folder, name, f"has {len(sums) // 8} checksums ({CODEC}) for {count} chunks", FIX)
    return sums

"""The documents of a checkpoint: the `zarr.json` of its group, and of each array.

The group's attributes list the arrays, with the checksum of each chunk, and end with a digest of that list. So a chunk
that has changed places with another, or is of another save, is found as well as one that is damaged. A key of
`jax.random` is two words of 32 bits, in a last dimension.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from core.model import ITEM_BYTES

from .chunks import cells
from .documents import LAST, MOST, NAME, ArrayEntry, CheckpointError, Request
from .files import Damaged, document

ROOT_FILE = "zarr.json"  # of the group; written last, before the rename
KEYS = "key<fry>"
WORDS = 2
FORMAT = 1
DIMENSIONS = 64  # most of an array: as many as numpy knows
SUMS = re.compile(r"([0-9a-f]{8})*")
CODEC = "crc32c"
Shape = tuple[int, ...]


class SavedArray(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One array. `sums`: of its chunks, in row-major order, eight digits each."""

    dtype: str
    shape: Shape
    chunk: Shape
    sums: str = ""


class SavedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is in the group's attributes. `save`: the nonce of the save. `sum`: digest of all the rest."""

    format: int
    step: int
    save: str
    arrays: dict[str, SavedArray]
    sum: str = ""


class _Attributes(msgspec.Struct):
    seaway: SavedStep


class _GroupDocument(msgspec.Struct):
    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: _Attributes


class _Names(msgspec.Struct, frozen=True):
    separator: str = "/"


class _KeyEncoding(msgspec.Struct, frozen=True):
    name: Literal["default"] = "default"
    configuration: _Names = _Names()


class _Chunks(msgspec.Struct):
    chunk_shape: Shape


class _ChunkGrid(msgspec.Struct):
    name: Literal["regular"]
    configuration: _Chunks


class _Codec(msgspec.Struct, omit_defaults=True):
    name: str
    configuration: dict[str, Any] = {}


class _ArrayDocument(msgspec.Struct):
    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: Shape
    data_type: str
    chunk_grid: _ChunkGrid
    chunk_key_encoding: _KeyEncoding
    fill_value: Any
    codecs: list[_Codec]
    storage_transformers: list[Any] = []


class ChunkLayout(NamedTuple):
    """How an array lies in its files. `sums`: a list; "": nobody has one."""

    name: str
    dtype: str
    chunk: Shape  # elements, without the words of a key
    grid: Shape
    sums: str = ""
    zarr: Literal[2, 3] = 3

    @property
    def summed(self) -> bool:
        """Whether files end with a checksum."""
        return self.zarr == 3

    @property
    def nbytes(self) -> int:
        """The size of a chunk, without its checksum."""
        return prod(self.chunk) * ITEM_BYTES[self.dtype]

    def cells(self) -> Iterator[Shape]:
        return cells([0] * len(self.grid), self.grid)

    def file(self, cell: Sequence[int]) -> str:
        if self.zarr == 2:
            return f"{self.name}/{'.'.join(map(str, cell)) or '0'}"
        return "/".join([self.name, "c", *map(str, cell), *(["0"] if self.dtype == KEYS else [])])

    def sum_of(self, cell: Sequence[int]) -> str:
        """From the list."""
        if not self.sums:
            return ""
        number = 0
        for at, count in zip(cell, self.grid, strict=True):
            number = number * count + at
        return self.sums[8 * number : 8 * number + 8]


def layout_of(entry: ArrayEntry) -> ChunkLayout:
    """The layout of an array that is being saved."""
    return ChunkLayout(entry.name, entry.dtype, entry.chunk, grid_of(entry.shape, entry.chunk))


# --- written ------------------------------------------------------------------------------------------------------


def array_document(entry: ArrayEntry) -> bytes:
    dtype, shape = _disk_look(entry.dtype, entry.shape)
    _, chunk = _disk_look(entry.dtype, entry.chunk)
    nothing: Any = [0, 0] if dtype.startswith("complex") else False if dtype == "bool" else 0
    return _text(
        {
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": nothing,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": CODEC}],
            "attributes": {},
        }
    )  # fmt: skip


def group_document(request: Request, arrays: dict[str, SavedArray]) -> bytes:
    told = SavedStep(FORMAT, request.step, request.nonce, arrays)
    told = replace(told, sum=_digest(told))
    return _text({"zarr_format": 3, "node_type": "group", "attributes": {"seaway": told}})


def _text(found: Any) -> bytes:
    return msgspec.json.encode(found)


def _digest(told: SavedStep) -> str:
    text = msgspec.json.encode(replace(told, sum=""), order="sorted")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


# --- read ---------------------------------------------------------------------------------------------------------


def saved_step(folder: Path) -> SavedStep:
    """The list of a complete step, in which all sizes make sense. Raises CheckpointError."""
    text = document(folder, ROOT_FILE)
    group: _GroupDocument = _decoded(folder, ROOT_FILE, text, _GroupDocument, "is not that of a Seaway checkpoint")
    told = group.attributes.seaway
    if told.sum != _digest(told):
        raise Damaged(folder, ROOT_FILE, "is damaged: its checksum is wrong")
    wrong = _wrong(told)
    if wrong:
        raise Damaged(folder, ROOT_FILE, f"is not that of a Seaway checkpoint: {wrong}")
    return told


def _decoded(folder: Path, name: str, text: bytes, kind: Any, otherwise: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        newer = _newer(text) if kind is _GroupDocument else 0
        if newer:
            raise CheckpointError(
                f"checkpoint {folder}: format {newer} is unknown to this version; a newer Seaway wrote it"
            ) from None
        raise Damaged(folder, name, f"{otherwise}: {str(error)[:200]}") from None


def _newer(text: bytes) -> int:
    """The format, if it is one of a newer version."""
    try:
        told = msgspec.json.decode(text, type=dict[str, Any])["attributes"]["seaway"]["format"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return 0
    return told if isinstance(told, int) and told > FORMAT else 0


def _wrong(told: SavedStep) -> str:
    if told.format != FORMAT or not 0 <= told.step <= LAST:
        return f"format {told.format}, step {told.step}"
    if len(told.arrays) > MOST:
        return f"{len(told.arrays)} arrays; at most {MOST}"
    for name, each in told.arrays.items():
        shaped = len(each.shape) <= DIMENSIONS and all(size >= 0 for size in each.shape)
        if not NAME.fullmatch(name) or each.dtype not in ITEM_BYTES or not shaped:
            return f"an array {name[:80]!r} of type {each.dtype[:40]!r} and shape {each.shape[:8]}"
        if not fits_in(each.shape, each.chunk):
            return f"array {name!r} of shape {each.shape[:8]} in chunks of {each.chunk[:8]}"
        count = prod(grid_of(each.shape, each.chunk))
        if len(each.sums) != 8 * count or not SUMS.fullmatch(each.sums):
            return f"array {name!r} has {len(each.sums) // 8} checksums for {count} chunks"
    return ""


def chunk_layout(folder: Path, name: str, saved: SavedArray) -> ChunkLayout:
    """How an array lies in its files. Raises Damaged if its own document does not agree with the group's list."""
    file = f"{name}/{ROOT_FILE}"
    told: _ArrayDocument = _decoded(
        folder, file, document(folder, file), _ArrayDocument, "is not that of an array of a checkpoint"
    )
    dtype, shape = _disk_look(saved.dtype, saved.shape)
    if (told.data_type, list(told.shape)) != (dtype, shape):
        raise Damaged(folder, file, f"describes a {told.data_type[:40]}{list(told.shape[:8])}, not {dtype}{shape[:8]}")
    chunk = told.chunk_grid.configuration.chunk_shape
    if saved.dtype == KEYS and chunk[-1:] == (WORDS,):
        chunk = chunk[:-1]
    elif saved.dtype == KEYS:
        chunk = ()
    if chunk != saved.chunk:
        raise Damaged(folder, file, f"describes chunks of {chunk[:8]}")
    names = [codec.name for codec in told.codecs]
    endian = told.codecs[0].configuration.get("endian") if told.codecs else None
    plain = ITEM_BYTES[saved.dtype] == 1 and endian is None
    readable = names == ["bytes", CODEC] and (endian == "little" or plain)
    if not readable or told.storage_transformers or told.chunk_key_encoding.configuration.separator != "/":
        raise Damaged(folder, file, f"describes files that Seaway does not write (codecs {', '.join(names)[:80]})")
    return ChunkLayout(name, saved.dtype, chunk, grid_of(saved.shape, chunk), saved.sums)


def fits_in(shape: Shape, chunk: Shape) -> bool:
    """No chunk is larger than its array, so what an array needs bounds what is read at once."""
    return len(shape) == len(chunk) and all(1 <= part <= max(1, size) for part, size in zip(chunk, shape, strict=True))


def grid_of(shape: Sequence[int], chunk: Sequence[int]) -> Shape:
    return tuple(-(-size // part) for size, part in zip(shape, chunk, strict=True))


def _disk_look(dtype: str, shape: Sequence[int]) -> tuple[str, list[int]]:
    return ("uint32", [*shape, WORDS]) if dtype == KEYS else (dtype, list(shape))

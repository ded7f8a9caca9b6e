"""A small checkpoint of several types, as hosts write it; and its contents read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from backend.checkpoint import Box, folders, zarrs
from backend.checkpoint.documents import ArrayEntry, Request
from backend.contents.shard_io import numpy_dtype
from core.model import Index

ENTRIES = (
    ArrayEntry("x", "float32", (8, 6), (), (4, 3)),
    ArrayEntry("layer.key", "key<fry>", (4,), (), (2,)),
    ArrayEntry("flags", "bool", (6,), (), (6,)),
    ArrayEntry("half", "bfloat16", (5,), (), (5,)),
    ArrayEntry("number", "int32", (), (), ()),
    ArrayEntry("none", "complex64", (0, 3), (), (1, 3)),
)


def contents(seed: int) -> list[Any]:
    found = []
    for entry in ENTRIES:
        kind = numpy_dtype(entry.dtype)
        top = 2 if entry.dtype == "bool" else 100
        raw = np.random.default_rng(seed).integers(0, top, int(np.prod(entry.shape)) * kind.itemsize)
        found.append(raw.astype(np.uint8).view(kind).reshape(entry.shape))
    return found


def save(folder: Path, step: int, seed: int, **options: Any) -> Path:
    """A whole step. The contents are those of the seed."""
    asked = Request(str(folder), step, f"{seed:016x}", **options)
    pieces = [
        (number, tuple(slice(0, size) for size in entry.shape), array)
        for number, (entry, array) in enumerate(zip(ENTRIES, contents(seed), strict=True))
    ]
    partial = folders.partial(folder, asked)
    partial.mkdir(parents=True, exist_ok=True)
    zarrs.write(partial, ENTRIES, pieces, first=True)
    zarrs.finish(partial, asked, ENTRIES)
    folders.complete(folder, asked)
    return folders.whole(folder, step)


def read(step: Path) -> list[bytes]:
    """All of it."""
    wanted: list[tuple[ArrayEntry, dict[Index, Box]]] = [
        (entry, {(): tuple(slice(0, size) for size in entry.shape)}) for entry in ENTRIES
    ]
    return [shards[()].tobytes() for shards in zarrs.read(step, wanted)]

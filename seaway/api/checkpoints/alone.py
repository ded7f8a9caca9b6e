"""The computations of checkpoints on this machine, whole arrays at once: for simulations that compute.

They write and read the same files as hosts do, so what a simulation has saved a real session restores, and the other
way round.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from backend.checkpoint import ArrayEntry, Box, Document, Request, folders, leftovers, request_of, zarrs
from core.model import Index

from ...specs import avals

Contents = list[Any]
ROOT = Path("/")


_marks: dict[Path, leftovers.Mark] = {}  # of saves that are not complete


class LoadShelf:
    """What was read, on its way to `load`: it takes the place of a token."""

    def __init__(self, shards: list[Any]) -> None:
        self.arrays = shards

    def __len__(self) -> int:
        return 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return token()


def save(document: Document, contents: Contents) -> Contents:
    request, *given = contents
    folder, asked = _asked(request)
    folders.saved_already(folder, asked)  # which it cannot be; but another may
    pieces = []
    for number, (entry, content) in enumerate(zip(document.entries, given, strict=True)):
        array = avals.host_array(content, avals.aval(entry.shape, entry.dtype))
        if entry.dtype == avals.KEY:
            array = np.ascontiguousarray(array).view(np.uint64)[..., 0]
        pieces.append((number, tuple(slice(0, size) for size in entry.shape), np.array(array)))
    partial = folders.partial(folder, asked)
    zarrs.crc32c()
    _marks[partial] = mark = leftovers.begin(partial)
    try:
        leftovers.tidy(folder, mark.now)
        zarrs.write(partial, document.entries, pieces, first=True)
    except BaseException:
        _marks.pop(partial, None)
        folders.discard(folder, asked)
        raise
    return [token()]


def commit(document: Document, contents: Contents) -> Contents:
    folder, asked = _asked(contents[0])
    partial = folders.partial(folder, asked)
    zarrs.finish(partial, asked, document.entries)
    folders.complete(folder, asked)
    _marks.pop(partial, None)
    return [token(asked.step)]


def read(document: Document, contents: Contents) -> Contents:
    folder, asked = _asked(contents[0])
    wanted: list[tuple[ArrayEntry, dict[Index, Box]]] = [
        (entry, {(): tuple(slice(0, size) for size in entry.shape)}) for entry in document.entries
    ]
    found = zarrs.read(folders.found(folder, asked.step), wanted)
    return [LoadShelf([shards[()] for shards in found])]


def load(document: Document, contents: Contents) -> Contents:
    (shelf,) = contents
    return [_as_contents(entry.dtype, array) for entry, array in zip(document.entries, shelf.arrays, strict=True)]


def latest(document: Document, contents: Contents) -> Contents:
    folder, _ = _asked(contents[0])
    last = folders.latest(folder)
    return [token(0 if last is None else last + 1)]


def token(number: int = 0) -> np.ndarray[Any, Any]:
    return np.full((1,), number, np.int32)


def _as_contents(dtype: str, array: Any) -> Any:
    if dtype != avals.KEY:
        return array
    import jax

    words: Any = np.ascontiguousarray(array).view(np.uint32).reshape(*array.shape, 2)
    return jax.random.wrap_key_data(words)


def _asked(request: Any) -> tuple[Path, Request]:
    """A simulation's requests are the same each time it runs; two that run at once must not meet in one folder."""
    found = request_of(np.asarray(request))
    own = hashlib.blake2b(f"{found.nonce} {os.getpid()}".encode(), digest_size=8).hexdigest()
    return folders.below(ROOT, found.folder), msgspec.structs.replace(found, nonce=own)

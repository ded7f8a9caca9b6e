"""Costs that were found before, on disk: by what was compiled, for what, and by which versions.

A folder of small JSON files, one a cost: `$SEAWAY_CACHE`, or `seaway` below `$XDG_CACHE_HOME` or `~/.cache`. A file
that cannot be read or written is as if it were not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import CostError
from .cost import FORMAT, Cost

READER = 3  # raise it when the same compiled text gives other figures
MADE_BY = ("jax", "jaxlib", "libtpu")


def folder() -> Path:
    own = os.environ.get("SEAWAY_CACHE")
    if own:
        return Path(own) / "costs"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "seaway" / "costs"


def key(*parts: str) -> str:
    made_by = [f"{package} {_version(package)}" for package in MADE_BY]
    text = "\0".join([str(FORMAT), str(READER), *made_by, *parts])
    return hashlib.sha256(text.encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cost(key: str, name: str, compute: Callable[[], Cost], *, refresh: bool = False) -> Cost:
    """The cost under `key`, or what `compute` gives, which is kept. `name` is the caller's, whoever kept it."""
    path = folder() / f"{key}.json"
    if not refresh:
        with contextlib.suppress(CostError, OSError, UnicodeDecodeError):
            return msgspec.structs.replace(Cost.from_json(path), name=name)
    found = compute()
    with contextlib.suppress(OSError):
        _write(path, found.to_json())
    return found


def _write(path: Path, text: str) -> None:
    """All of it or nothing, also when two write at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise

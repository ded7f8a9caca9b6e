"""A cache of costs on disk. The key is made of the computation, its target, and the versions of the compilers.

It is a folder of small JSON files, one a cost: `$SEAWAY_CACHE`, or `seaway` below `$XDG_CACHE_HOME` or `~/.cache`. A
file that cannot be read or written is ignored.
"""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from backend.plain_files import replace_file

from ..errors import CostError
from .cost import FORMAT, Cost

READER = 4  # raise it when the same compiled text gives other figures
MADE_BY = ("jax", "jaxlib", "libtpu", "seaway")


def folder() -> Path:
    own = os.environ.get("SEAWAY_CACHE")
    if own:
        return Path(own) / "costs"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "seaway" / "costs"


def key(*parts: str) -> str:
    made_by = [f"{package} {version}" for package, version in versions().items() if package != "seaway"]
    text = "\0".join([str(FORMAT), str(READER), *made_by, *parts])
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Of the packages that make a cost."""
    found = dict.fromkeys(MADE_BY, "not installed")
    for package in MADE_BY:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def cost(key: str, name: str, compute: Callable[[], Cost], *, refresh: bool = False) -> Cost:
    """The cached cost, renamed to `name`; or the result of `compute`, which is then cached."""
    path = folder() / f"{key}.json"
    if not refresh:
        with contextlib.suppress(CostError, OSError, ValueError, RecursionError):  # msgspec's are ValueErrors
            kept = Cost.from_json(path)
            if _sum(kept) == msgspec.json.decode(path.read_bytes(), type=_Summed).sum:
                return msgspec.structs.replace(kept, name=name)
    found = compute()
    with contextlib.suppress(OSError):
        text = found.to_json().removesuffix("\n}\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, f'{text},\n  "sum": "{_sum(found)}"\n}}\n'.encode(), durable=False)
    return found


class _Summed(msgspec.Struct):
    """A file whose figures were changed, by whatever it was, is not used."""

    sum: str = ""


def _sum(found: Cost) -> str:
    return hashlib.sha256(found.to_json().encode()).hexdigest()

"""Is the house ours?

Seaway's rooms have plain top-level names (`core`, `sim`, `backend`), so a stranger's file of the same name
that comes earlier on the path would be imported in place of ours, and fail far from the cause. `check` looks
first, and says which file was found and what to do.

`import seaway` checks `core`. The drivers' rooms are to be checked by whoever is about to import them: a user
whose own project has a folder `backend` can still simulate.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
"""Where our rooms stand, side by side."""

MARK = "__seaway__ = True"
"""A line in the `__init__.py` of each room; it shows a file of ours that another package has overwritten."""


def check(*rooms: str) -> None:
    """Raise ImportError unless each of `rooms`, when imported, is the one that stands beside us."""
    for room in rooms:
        ours = HOME / room / "__init__.py"
        found = _find(room)
        if found is None or not _same(found, ours):
            raise ImportError(_stranger(room, ours, found), name=room, path=found)
        if MARK not in ours.read_text(encoding="utf-8").splitlines():
            raise ImportError(_overwritten(room, ours), name=room, path=found)


def _find(room: str) -> str | None:
    """The file that `import room` gives, as far as can be told without running it."""
    loaded = sys.modules.get(room)
    if loaded is not None:
        return getattr(loaded, "__file__", None) or repr(loaded)
    spec = find_spec(room)
    if spec is None:
        return None
    return spec.origin or ", ".join(spec.submodule_search_locations or ())


def _same(found: str, ours: Path) -> bool:
    return Path(found).resolve() == ours


def _stranger(room: str, ours: Path, found: str | None) -> str:
    if found is None:
        return f"Seaway's package `{room}` is missing: there is no {ours}. Reinstall seaway."
    return (
        f"`import {room}` finds {found}, which is not Seaway's; ours is {ours}. "
        "Rename or move the file that was found, or take its folder off the path "
        "(PYTHONPATH, the current directory: `python -P` leaves that out)."
    )


def _overwritten(room: str, ours: Path) -> str:
    return (
        f"{ours} is no longer Seaway's: another installed package has a top-level `{room}` too and has "
        "overwritten it. Install seaway again, in a virtual environment without that package."
    )

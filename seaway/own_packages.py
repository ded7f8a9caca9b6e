"""Whether `core`, `sim` and `backend`, when imported, are Seaway's own packages.

They have plain top-level names, so another file of such a name that comes earlier on the path would be imported in
place of ours, and fail far from the cause. `check` looks first, and says which file was found and what to do.

`import seaway` checks `core`. The drivers' packages are checked before they are imported: a user whose own project has
a folder `backend` can still simulate.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
"""Where our packages stand, side by side."""

MARK = "__seaway__ = True"
"""A line in the `__init__.py` of each package; it shows a file of ours that another package has overwritten."""


def check(*packages: str) -> None:
    """Raise ImportError unless each of `packages`, when imported, is the one that stands beside us."""
    for package in packages:
        ours = HOME / package / "__init__.py"
        found = _find(package)
        if found is None or not _same(found, ours):
            raise ImportError(_another(package, ours, found), name=package, path=found)
        if MARK not in ours.read_text(encoding="utf-8").splitlines():
            raise ImportError(_overwritten(package, ours), name=package, path=found)


def _find(package: str) -> str | None:
    """The file that `import package` gives, as far as can be told without running it."""
    loaded = sys.modules.get(package)
    if loaded is not None:
        return getattr(loaded, "__file__", None) or repr(loaded)
    spec = find_spec(package)
    if spec is None:
        return None
    return spec.origin or ", ".join(spec.submodule_search_locations or ())


def _same(found: str, ours: Path) -> bool:
    return Path(found).resolve() == ours


def _another(package: str, ours: Path, found: str | None) -> str:
    if found is None:
        return f"Seaway's package `{package}` is missing: there is no {ours}. Reinstall seaway."
    return (
        f"`import {package}` finds {found}, which is not Seaway's; ours is {ours}. "
        "Rename or move the file that was found, or take its folder off the path "
        "(PYTHONPATH, the current directory: `python -P` leaves that out)."
    )


def _overwritten(package: str, ours: Path) -> str:
    return (
        f"{ours} is no longer Seaway's: another installed package has a top-level `{package}` too and has "
        "overwritten it. Install seaway again, in a virtual environment without that package."
    )

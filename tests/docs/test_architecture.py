"""docs/architecture.md names modules and packages that exist, and each package of the product."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("core", "sim", "backend", "seaway", "experiments")
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_its_tables_name_only_what_exists() -> None:
    there = {path.stem for root in PRODUCT for path in (ROOT / root).rglob("*")}
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name.rstrip("/") for row in rows for name in re.findall(r"`([a-z_0-9/]+)`", row)}
    assert len(named) > 150
    assert not sorted(name for name in named if name.rpartition("/")[2] not in there)


def test_its_paths_exist() -> None:
    paths = re.findall(r"`((?:core|sim|backend|seaway)/[\w/.]+)`", PAGE)
    assert len(paths) > 10
    assert not [path for path in paths if not any((ROOT / f"{path}{end}").exists() for end in ("", ".py"))]


def test_each_package_has_its_row() -> None:
    for root in ("core", "sim", "backend", "seaway"):
        packages = {path.parent.name for path in (ROOT / root).glob("*/__init__.py")}
        assert not sorted(name for name in packages if f"| `{name}` |" not in PAGE)

"""docs/architecture.md names paths that exist, and each package of the product."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_its_paths_exist() -> None:
    paths = re.findall(r"`((?:core|sim|backend|seaway)/[\w/.]+)`", PAGE)
    assert len(paths) > 10
    assert not [path for path in paths if not any((ROOT / f"{path}{end}").exists() for end in ("", ".py"))]


def test_its_functions_stand_in_the_file_before_them() -> None:
    named = re.findall(r"`((?:core|sim|backend|seaway)/[\w/]+\.py)` \(`(\w+)`\)", PAGE)
    assert len(named) > 5
    assert not [(path, name) for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]


def test_its_tables_name_each_package_and_nothing_else() -> None:
    there = {
        path.parent.name
        for root in ("core", "sim", "backend", "seaway")
        for path in (ROOT / root).glob("*/__init__.py")
    }
    rows = PAGE.partition("## Layers and packages")[2].partition("## Who speaks")[0]
    firsts = [line.split("|")[1] for line in rows.splitlines() if line.startswith("| `")]
    assert {name for first in firsts for name in re.findall(r"`(\w+)`", first)} == there

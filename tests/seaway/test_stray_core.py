"""A foreign `core` on the path gives one clear error from `import seaway`; a foreign `sim` gives none."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def python(code: str, *path: Path, cwd: Path, flags: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh Python that looks in `cwd`, then in each of `path`, then where it always looks."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd,
        env={"PYTHONPATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )


def complaint(result: subprocess.CompletedProcess[str]) -> str:
    """The one ImportError that ended the run, without a second exception behind it."""
    assert result.returncode == 1, result.stdout
    assert result.stderr.count("Traceback") == 1, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    return last


@pytest.mark.parametrize("code", ["import seaway", "import core, seaway"])
def test_a_foreign_core_file_in_the_current_directory_is_named(tmp_path: Path, code: str) -> None:
    stray = tmp_path / "core.py"
    stray.write_text("" if code.startswith("import core") else "raise SystemExit('a stranger was run')")
    said = complaint(python(code, ROOT, cwd=tmp_path))
    assert f"`import core` finds {stray}" in said
    assert f"ours is {ROOT / 'core' / '__init__.py'}" in said
    assert "Rename or move" in said


def test_a_foreign_core_package_on_pythonpath_is_named(tmp_path: Path) -> None:
    stray, elsewhere = tmp_path / "theirs" / "core" / "__init__.py", tmp_path / "elsewhere"
    stray.parent.mkdir(parents=True)
    stray.touch()
    elsewhere.mkdir()
    said = complaint(python("import seaway", tmp_path / "theirs", ROOT, cwd=elsewhere))
    assert f"`import core` finds {stray}" in said


def test_a_foreign_core_without_a_file_is_named(tmp_path: Path) -> None:
    code = "import sys, types; sys.modules['core'] = types.ModuleType('core'); import seaway"
    assert "<module 'core'>" in complaint(python(code, ROOT, cwd=tmp_path))


def test_a_folder_that_is_no_package_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    assert python("import seaway", ROOT, cwd=tmp_path).returncode == 0


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages that `import seaway` reads, for the test to damage."""
    for room in ("core", "seaway"):
        shutil.copytree(ROOT / room, tmp_path / "copy" / room, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "copy"


def test_a_copy_works_until_another_package_has_overwritten_its_core(copy: Path, tmp_path: Path) -> None:
    result = python("import seaway; print(seaway.__file__)", copy, cwd=tmp_path)
    assert result.stdout.strip() == str(copy / "seaway" / "__init__.py"), result.stderr
    ours = copy / "core" / "__init__.py"
    ours.write_text("'''Installed over ours by another package with a top-level core.'''")
    said = complaint(python("import seaway", copy, cwd=tmp_path))
    assert f"{ours} is no longer Seaway's" in said


def test_a_missing_core_is_named(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "core")
    # -S: no installed core either
    said = complaint(python("import seaway", copy, cwd=tmp_path, flags=["-S"]))
    assert f"there is no {copy / 'core' / '__init__.py'}" in said


@pytest.mark.parametrize("room", ["sim", "backend"])
def test_a_foreign_driver_matters_only_when_it_is_imported(tmp_path: Path, room: str) -> None:
    stray = tmp_path / f"{room}.py"
    stray.touch()
    assert python("import seaway", ROOT, cwd=tmp_path).returncode == 0
    said = complaint(python(f"import seaway; seaway.own_packages.check('{room}')", ROOT, cwd=tmp_path))
    assert f"`import {room}` finds {stray}" in said


def test_every_package_of_the_product_has_the_mark(tmp_path: Path) -> None:
    code = "import seaway; seaway.own_packages.check('core', 'sim', 'backend')"
    result = python(code, ROOT, cwd=tmp_path)
    assert result.returncode == 0, result.stderr

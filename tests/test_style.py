"""Rules that no linter has: files and functions are small, and no machine's paths are in the tree."""

import re
from collections.abc import Iterator
from pathlib import Path

from .sources import PRODUCT, ROOT, relative, source

ROOMS = (*PRODUCT, "experiments")

FILE_LINES = 600  # a backstop; CONTRIBUTING.md has the advice
FUNCTION_LINES = 70  # what fits on one screen

NOT_OURS = {"__pycache__", "build", "dist", "node_modules"}
A_HOME = re.compile(r"(?<![\w.~$}])/(?:root|home/\w+|Users/\w+)\b")


def files(folder: Path = ROOT) -> Iterator[Path]:
    """All files of ours below `folder`. Hidden folders other than .ci/ are left out."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            yield path
        elif path.name == ".ci" or not (path.name.startswith(".") or path.name in NOT_OURS):
            yield from files(path)


def python_files() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_rules_see_our_files() -> None:
    seen = {relative(path) for path in files()}
    assert {"core/__init__.py", "tests/test_style.py", ".ci/run", "README.md"} <= seen


def test_a_file_is_not_too_long() -> None:
    long = {relative(path): n for path in python_files() if (n := len(lines_of(path))) > FILE_LINES}
    assert not long, f"over {FILE_LINES} lines; split them: {long}"


def test_a_function_fits_on_one_screen() -> None:
    long = {
        f"{relative(path)}:{line} {function}": length
        for path in python_files()
        for function, line, length in source(path).functions
        if length > FUNCTION_LINES
    }
    assert not long, f"over {FUNCTION_LINES} lines; split them: {long}"


def test_a_module_has_a_docstring() -> None:
    silent = [
        relative(path)
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in ROOMS and source(path).docstring is None
    ]
    assert not silent, f"no docstring at the top: {silent}"


def test_no_file_contains_a_path_of_a_machine() -> None:
    found = []
    for path in files():
        try:
            lines = lines_of(path)
        except UnicodeDecodeError:
            continue  # not text
        found += [f"{relative(path)}:{at}" for at, line in enumerate(lines, 1) if A_HOME.search(line)]
    assert not found, f"an absolute path into somebody's home: {found}"


def test_home_folders_are_recognised() -> None:
    homes = ["/ho" + "me/ann/x", "in /ro" + "ot/.cache", "'/Us" + "ers/ann'"]
    others = ["~/x", "$HOME/x", "docs/root/x", "core/home/x.py", "/rooted", "${root}/root"]
    assert all(A_HOME.search(text) for text in homes)
    assert not any(A_HOME.search(text) for text in others)

"""One name, one meaning: each class and module of the product has a name of its own, except for a few with reasons."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("core", "sim", "backend", "seaway")

# Names that are used twice, and why.
CLASSES = {
    "Computation": "core's is the compiled function that a user's `sw.jit` function, seaway's, stands for",
    "Opening": "wire's introduces a stream between our processes; the door's makes a session of its client",
    "Program": "core's is what a user's `@sw.program`, seaway's, is traced to",
    "Stalled": "the controller's message, and the error that a client raises when it has it",
    "Trace": "core's tables, and seaway's face of them for notebooks",
}
MODULES = {
    "driver": "the two kinds of session, connected and simulated, have the same parts",
    "port": "as `driver`; and what both implement",
    "pricing": "as `driver`",
    "errors": "the errors of one layer each: core, simulator, client",
    "trace": "the modules of the two classes of that name",
}


def files() -> list[Path]:
    return [path for root in PRODUCT for path in sorted((ROOT / root).rglob("*.py"))]


@cache
def classes() -> dict[str, list[str]]:
    """The files that define each class."""
    found = defaultdict(list)
    for path in files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def modules() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in files():
        if not path.name.startswith("__"):
            found[path.stem].append(path.relative_to(ROOT).as_posix())
    return found


def duplicates(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in found.items() if len(places) > 1}


def test_the_search_sees_the_product() -> None:
    assert classes()["Controller"] == ["core/controller/controller.py"]
    assert len(modules()["driver"]) == 2


def test_a_class_has_a_name_of_its_own() -> None:
    several = {name: places for name, places in duplicates(classes()).items() if name not in CLASSES}
    assert not several, f"rename all but one, or say in CLASSES why they are the same: {several}"


def test_a_module_has_a_name_of_its_own() -> None:
    several = {name: places for name, places in duplicates(modules()).items() if name not in MODULES}
    assert not several, f"rename all but one, or say in MODULES why they are the same: {several}"


def test_the_exceptions_are_needed() -> None:
    assert sorted(CLASSES) == sorted(CLASSES.keys() & duplicates(classes()))
    assert sorted(MODULES) == sorted(MODULES.keys() & duplicates(modules()))

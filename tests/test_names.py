"""One name, one meaning: each class and module of the product has a name of its own, except for a few with reasons.

And what the docstring of a module names as its neighbours, or as the functions that matter, exists.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from . import sources
from .sources import PRODUCT, relative, source

# Names that are used twice, and why.
CLASSES = {
    "Computation": "core's is the compiled function that a user's `sw.jit` function, seaway's, stands for",
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

RETIRED = {  # names that had several meanings, or were pictures, and what to write instead
    "cargo": "contents", "rooms": "packages", "_house": "own_packages",
    "Told": "HostOffset, or what else is told", "Took": "a time", "Looked": "a reply",
}  # fmt: skip


@cache
def files() -> list[Path]:
    return list(sources.files(*PRODUCT))


def places(names: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """The files that have each name."""
    found = defaultdict(list)
    for path in files():
        for each in names(path):
            found[each].append(relative(path))
    return found


@cache
def classes() -> dict[str, list[str]]:
    return places(lambda path: source(path).classes)


def modules() -> dict[str, list[str]]:
    return places(lambda path: () if path.name.startswith("__") else (path.stem,))


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


def test_retired_names_stay_retired() -> None:
    found = {path: source(path).defined & RETIRED.keys() | {path.stem} & RETIRED.keys() for path in files()}
    again = {relative(path): names for path, names in found.items() if names}
    assert not again, f"write what RETIRED says instead: {again}"


# --- what docstrings of modules name --------------------------------------------------------------------------------

FUNCTIONS = re.compile(r"(?:unctions? that matters?(?: most)?:|\bRead (?=`))(.*?)(?:\.(?:\s|$)|\n\n|$)", re.DOTALL)
NEIGHBOURS = re.compile(r"Neighbours?:(.*?)(?:\.(?:\s|$)|\n\n|$)", re.DOTALL)
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
LISTED = re.compile(r"^ {0,4}((?:[a-z_0-9]+, )*[a-z_0-9]+) {2,}\S", re.MULTILINE)


def names_after(marked: re.Pattern[str], text: str) -> Iterator[str]:
    for sentence in marked.findall(text):
        yield from NAMED.findall(sentence)


def test_the_functions_that_matter_are_in_their_module() -> None:
    stale = []
    for path in files():
        here = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
        known = frozenset[str]().union(*(source(each).defined for each in here))
        stale += [
            f"{relative(path)}: {name}"
            for name in names_after(FUNCTIONS, source(path).docstring or "")
            if not known.issuperset(name.split("."))
        ]
    assert not stale


def test_neighbours_are_packages_or_classes() -> None:
    packages = {path.stem for path in files()} | {path.parent.name for path in files()}
    anywhere = packages.union(*(source(path).defined for path in files()))
    stale = []
    for path in files():
        known = packages | set(classes()) | source(path).defined
        for name in names_after(NEIGHBOURS, source(path).docstring or ""):
            first, *rest = name.split(".")
            if first not in known or not anywhere.issuperset(rest):
                stale.append(f"{relative(path)}: {name}")
    assert not stale


def test_a_package_lists_packages_that_it_has() -> None:
    """Lists of something else, such as layers, have hardly any name of a module in front."""
    stale = []
    for path in files():
        if path.name == "__init__.py":
            here = {each.stem for each in path.parent.iterdir()}
            listed = {name for names in LISTED.findall(source(path).docstring or "") for name in names.split(", ")}
            if len(listed & here) * 2 > len(listed):
                stale += [f"{relative(path)}: {name}" for name in sorted(listed - here)]
    assert not stale

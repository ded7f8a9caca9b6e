"""The controller's modules call each other in one direction only, and each field of a record is written by one of them.

Both are counted in the source. A module that calls another imports its class, at least to say what it is handed.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "core"
Source = dict[str, ast.Module]

# The records, and the names by which modules know them.
RECORDS = {
    "Buffer": {"buffer", "record", "shared"},
    "RunRecord": {"run", "reader"},
    "InFlight": {"entry", "oldest", "half"},
    "BufferName": {"named", "other", "source", "primary"},
    "ClientRecord": {"session"},
    "ProgramRecord": {"program"},
    "Waiter": {"waiter"},
    "WaitingView": {"view"},
}
CHANGES = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popleft", "put", "remove", "setdefault", "update",
}  # fmt: skip


@cache
def controller() -> Source:
    """Its modules, and that of its buffers."""
    paths = [*(CORE / "controller").glob("*.py"), CORE / "memory" / "buffers.py"]
    return {path.stem: ast.parse(path.read_text()) for path in paths if path.stem != "__init__"}


def classes(source: Source) -> dict[str, str]:
    """Class -> the module that defines it."""
    return {
        node.name: module for module, tree in source.items() for node in tree.body if isinstance(node, ast.ClassDef)
    }


def calls(source: Source) -> dict[str, set[str]]:
    """Module -> those that it imports: at the top, inside functions, and for types alone."""
    found: dict[str, set[str]] = {module: set() for module in source}
    for module, tree in source.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module in source:
                found[module].add(node.module)
    return found


def circles(edges: dict[str, set[str]]) -> set[str]:
    """Modules that can be reached from themselves."""

    def reached(start: str) -> set[str]:
        seen, todo = set[str](), [start]
        while todo:
            for module in edges[todo.pop()] - seen:
                seen.add(module)
                todo.append(module)
        return seen

    return {module for module in edges if module in reached(module)}


def pairs(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    return {(one, other) for one in edges for other in edges[one] if one < other and one in edges[other]}


def handed_over_late(source: Source) -> list[str]:
    """Attributes that a module declares and does not set: somebody else will."""
    return [
        f"{module}.{node.name}.{each.target.id}"
        for module, tree in source.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.bases
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is None
    ]


def fields(source: Source, record: str) -> set[str]:
    tree = source[classes(source)[record]]
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == record]
    return {
        node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def written(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Attributes that are set, or whose contents are changed."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func.value]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                place = each
                while isinstance(place, ast.Subscript):
                    place = place.value
                if isinstance(place, ast.Attribute):
                    yield place


def writers(source: Source) -> dict[str, set[str]]:
    """Field of a record -> modules that write it, beside that of the record."""
    found: dict[str, set[str]] = {}
    places = {module: list(written(tree)) for module, tree in source.items()}
    for record, names in RECORDS.items():
        its, home = fields(source, record), classes(source)[record]
        for module in source:
            for place in places[module] if module != home else ():
                owner = place.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if place.attr in its and name in names:
                    found.setdefault(f"{record}.{place.attr}", set()).add(module)
    return found


def writers_named(start: str, heading: str, entry: str) -> dict[str, str]:
    """What `records` says from `start` on to the next blank line behind an entry: entry -> the module above it."""
    text = (CORE / "controller" / "records.py").read_text()
    found: dict[str, str] = {}
    module = ""
    for line in text[text.index(start) :].splitlines():
        if not line and found:
            return found
        if (above := re.search(heading, line)) is not None:
            module = above[1]
        elif module and (named := re.match(entry, line)) is not None:
            found[named[1]] = module
    return found


def test_no_module_is_in_a_circle() -> None:
    assert not circles(calls(controller()))


def test_no_two_modules_call_each_other() -> None:
    assert not pairs(calls(controller()))


def test_each_module_is_made_with_what_it_calls() -> None:
    assert not handed_over_late(controller())


def test_each_field_of_a_record_has_one_writer() -> None:
    found = writers(controller())
    assert {field: sorted(modules) for field, modules in found.items() if len(modules) > 1} == {}
    assert set.union(*(found[field] for field in found if field.startswith("Buffer."))) == {"buffer_refs"}


def test_who_writes_a_run_stands_above_its_fields() -> None:
    named = writers_named("class RunRecord", r"written by `(\w+)`", r"    (\w+): ")
    found = {
        field.partition(".")[2]: modules
        for field, modules in writers(controller()).items()
        if field.startswith("RunRecord.")
    }
    assert found == {field: {named[field]} for field in found}


def test_who_says_what_has_happened_to_a_run_stands_in_its_table() -> None:
    found = {
        (str(node.args[0].value), module)
        for module, tree in controller().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "turn"
        if ast.unparse(node.func.value) == "run" and isinstance(node.args[0], ast.Constant)
    }
    assert found == set(writers_named("RUN_TABLE:", r"said by `(\w+)`", r'    "(\w+)": {').items())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("from .b import B", "from .a import A", id="imports"),
        pytest.param("from .b import B", "def late():\n    from .a import A", id="an import inside a function"),
        pytest.param("from .b import B", "if TYPE_CHECKING:\n    from .a import A", id="a type"),
    ],
)
def test_circles_are_found(one: str, other: str) -> None:
    edges = calls({"a": ast.parse(one), "b": ast.parse(other), "c": ast.parse("from .a import A")})
    assert circles(edges) == {"a", "b"}
    assert pairs(edges) == {("a", "b")}


def test_late_attributes_and_writers_are_found() -> None:
    planted = "class Late:\n    runs: Runs\n\ndef end(run):\n    del run.held[1]\n    run.names.append(2)\n"
    source = {**controller(), "planted": ast.parse(planted)}
    assert handed_over_late(source) == ["planted.Late.runs"]
    assert "planted" in writers(source)["RunRecord.held"]
    assert "planted" in writers(source)["RunRecord.names"]

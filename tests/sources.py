"""What tests ask of our source. A file is read once, and its tree is not kept: collecting garbage would take long."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PRODUCT = ("core", "sim", "backend", "seaway")


class Source(NamedTuple):
    """A file of Python, as far as it is statements; `texts` are of its expressions, too."""

    docstring: str | None
    classes: list[str]
    functions: list[tuple[str, int, int]]  # name, line, and length
    stored: frozenset[str]  # variables and attributes that it sets
    imports: list[tuple[int, str]]  # level and module
    texts: frozenset[str]  # with … for what they are filled with
    codes: frozenset[str]  # of Blames

    @property
    def defined(self) -> frozenset[str]:
        return self.stored.union(self.classes, (name for name, _, _ in self.functions))


@cache
def source(path: Path) -> Source:
    collects = gc.isenabled()
    gc.disable()
    try:
        return _read(ast.parse(path.read_text(encoding="utf-8")))
    finally:
        if collects:
            gc.enable()


def parsed(text: str) -> Source:
    return _read(ast.parse(text))


def _read(tree: ast.Module) -> Source:
    found = Source(ast.get_docstring(tree), [], [], frozenset(), [], frozenset(), frozenset())
    stored, texts, codes = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                found.classes.append(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                found.functions.append((node.name, node.lineno, lines))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                stored.add(name)
            case ast.Import(names=names):
                found.imports.extend((0, alias.name) for alias in names)
            case ast.ImportFrom(module=module, level=level):
                found.imports.append((level, module or ""))
            case ast.JoinedStr(values=values):
                texts.add("".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in values))
            case ast.Constant(value=str(text)):
                texts.add(text)
            case ast.Call(func=ast.Name(id="Blame") | ast.Attribute(attr="Blame"), args=[ast.Constant(value=code), *_]):
                codes.add(str(code))
            case _:
                pass
    return found._replace(stored=frozenset(stored), texts=frozenset(texts), codes=frozenset(codes))


def files(*folders: str) -> Iterator[Path]:
    """The Python files of these folders of the tree."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()

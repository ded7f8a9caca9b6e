"""A page as a reader sees it: Python, commands, and the output that it shows for them, in order.

```python            runs; the snippets of a page follow one another (README's: of a section)
```python mine.py    ... and is also written to a file of that name
```sh                each line is a command; so is a line behind `$ ` in a ```text block, and an indented line
```text              right behind one of these: its exact output; a line of dots stands for any lines
```text shape        ... except for its numbers, which depend on the machine
```text part         ... among other lines
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from .table import SECTIONS

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "notebooks" / "README.md",
]

FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}((?:(?:make|python|seaway) (?=\S)|\.ci/run\b).*?)(?: {2,}.*)?$", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
HEADING = re.compile(r"^## +(.*)$", re.MULTILINE)


class Block(NamedTuple):
    kind: Literal["python", "command", "said"]
    text: str
    line: int
    how: str = ""  # of output: "", "shape" or "part"; of Python: the name of a file


class Unit(NamedTuple):
    """The part of a page that is run in one go, in one folder, with one set of names."""

    page: Path
    section: str  # "" for all of it
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return f"{name_of(self.page)}: {self.section}" if self.section else name_of(self.page)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def units() -> list[Unit]:
    """The units of a page: a section of some pages, whose readers start anywhere. Other pages are one unit."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = list(blocks_of(text))
        starts = [(0, "top"), *((line_at(text, at.start()), at[1]) for at in HEADING.finditer(text))]
        ends = [line for line, _ in starts[1:]] + [len(text)]
        parts = list(zip(starts, ends, strict=True)) if name_of(page) in SECTIONS else [((0, ""), len(text))]
        for (first, section), last in parts:
            mine = tuple(block for block in blocks if first <= block.line < last)
            if any(block.kind != "said" for block in mine):
                found.append(Unit(page, section, mine))
    return found


def line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def blocks_of(text: str) -> Iterator[Block]:
    found = [*_fenced(text), *_indented(text)]
    yield from sorted(found, key=lambda block: block.line)


def _fenced(text: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        language, how, inside = fence[1], fence[2].strip(), fence[3]
        line = line_at(text, fence.start())
        if language == "python":
            yield Block("python", inside, line, how)
        elif language == "sh":
            yield from _commands(inside, line + 1)
        elif language == "text" and inside.startswith("$ "):
            yield from _console(inside, line + 1, how)
        elif language == "text" and _follows(text, fence.start()):
            yield Block("said", inside, line, how)


def _follows(text: str, at: int) -> bool:
    """Whether this block follows right behind a block that prints it."""
    before = text[:at].rstrip("\n").splitlines()
    return bool(before) and (before[-1].strip() == "```" or INDENTED.match(before[-1]) is not None)


def _commands(text: str, line: int) -> Iterator[Block]:
    """The commands in a block. A backslash at the end of a line goes on."""
    begun, first = "", line
    for each in text.splitlines():
        begun, first = (begun + each, first) if begun else (each, line)
        if begun.endswith("\\"):
            begun = begun[:-1].rstrip() + " "
        else:
            if begun.strip() and not begun.lstrip().startswith("#"):
                yield Block("command", begun.strip(), first)
            begun = ""
        line += 1


def _console(text: str, line: int, how: str) -> Iterator[Block]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        yield Block("command", command, line)
        if said:
            yield Block("said", said, line, how or "shape")
        line += part.count("\n")


def _indented(text: str) -> Iterator[Block]:
    bare = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    for found in INDENTED.finditer(bare):
        yield Block("command", found[1], line_at(bare, found.start()))


def spans_of(page: Path) -> Iterator[str]:
    """The pieces of text that are marked as code."""
    bare = FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from (span.strip() for span in SPAN.findall(bare))


# --- comparing output ---------------------------------------------------------------------------------------------

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
QUANTITY = re.compile(rf"{NUMBER}(?: (?:ns|us|ms|s|KiB|MiB|GiB)\b)?")
HASH = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")


def matches(said: str, shown: str, how: str) -> bool:
    """Whether the output is as the page shows it."""
    pattern = "".join(_pattern(line, how) for line in shown.rstrip("\n").splitlines())
    text = "".join(f"{line.rstrip()}\n" for line in said.splitlines())
    if how == "part":
        return re.search(rf"^{pattern}", text, re.MULTILINE) is not None
    return re.fullmatch(pattern, text) is not None


def _pattern(line: str, how: str) -> str:
    line = line.rstrip()
    if line.strip() == "...":
        return r"(?:.*\n)*"
    if how != "shape":
        return f"{re.escape(line)}\n"
    parts, at = [], 0
    marked = re.compile(f"{HASH.pattern}|{QUANTITY.pattern}|\\s+")
    for found in marked.finditer(line):
        parts.append(re.escape(line[at : found.start()]))
        text = found[0]
        if text.isspace():
            parts.append(r"\s+")
        else:
            parts.append(r"[0-9a-f]+" if HASH.fullmatch(text) else QUANTITY.pattern)
        at = found.end()
    return "".join([*parts, re.escape(line[at:]), "\n"])

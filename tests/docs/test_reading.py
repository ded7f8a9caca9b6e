"""The reader of pages notices output that differs, commands that fail, and programs that do not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import Block, Unit, blocks_of, matches
from .reading import Reader, instead_of, read

PAGE = """
Text, `code`, and

```python mine.py
print(6 * 7)
```
```text
42
```
```sh
seaway --version    # says who it is
seaway status \\
    head:29000
```

```text
$ seaway log run.log
12 events
$ seaway down --state x
```

    make test       all of them
    seaway          the library, which is no command
"""


def test_a_page_is_split_into_python_commands_and_output() -> None:
    assert [(block.kind, block.text.strip(), block.how) for block in blocks_of(PAGE)] == [
        ("python", "print(6 * 7)", "mine.py"),
        ("said", "42", ""),
        ("command", "seaway --version    # says who it is", ""),
        ("command", "seaway status     head:29000", ""),
        ("command", "seaway log run.log", ""),
        ("said", "12 events", "shape"),
        ("command", "seaway down --state x", ""),
        ("command", "make test", ""),
    ]


@pytest.mark.parametrize(
    ("said", "shown", "how", "equal"),
    [
        ("a 1\n", "a 1\n", "", True),
        ("a 2\n", "a 1\n", "", False),
        ("a  1\n", "a 1\n", "", False),
        ("a 1\nb\n", "a 1\n", "", False),
        ("a 1\nb\nc\n", "a 1\n...\n", "", True),
        ("a 1\nb\nc\n", "...\nc\n", "", True),
        ("a 1\nb\nc\n", "...\nd\n", "", False),
        ("took 1.5 ms, -3%\n", "took 22 us, +4%\n", "shape", True),
        ("took 1.5 ms\n", "takes 1.5 ms\n", "shape", False),
        ("order 0f3a99c2d4e5f601\n", "order 242fb507b5c15cfa\n", "shape", True),
        ("order unknown\n", "order 242fb507b5c15cfa\n", "shape", False),
        ("x\na 1\ny\n", "a 1\n", "part", True),
        ("x\na 12\ny\n", "a 1\n", "part", False),
    ],
)
def test_output_is_compared_exactly_or_by_shape_or_in_part(said: str, shown: str, how: str, equal: bool) -> None:
    assert matches(said, shown, how) is equal


def follow(folder: Path, *blocks: Block) -> None:
    reader = Reader(folder)
    try:
        for block in blocks:
            reader.does(block, "here")
    finally:
        reader.close()


def test_different_output_is_noticed(tmp_path: Path) -> None:
    unit = Unit(
        Path(__file__).parents[2] / "README.md", "", (Block("python", "print(6 * 7)\n", 1), Block("said", "43\n", 4))
    )
    with pytest.raises(AssertionError, match=r"README\.md:4 shows\n43\n"):
        read(unit, tmp_path)


def test_a_program_that_never_gets_ready_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no policy is called 'nope'"):
        follow(tmp_path, Block("command", "seaway controller --policy nope", 1))


def test_commands_are_replaced_as_the_table_says() -> None:
    assert instead_of("make test") == 'make -C "$ROOT" -n test'
    assert instead_of("seaway up --hosts 2") == "seaway up --hosts 2 --bind 127.0.0.1:29000"
    assert instead_of("seaway up --hosts 2 --bind x:1") == "seaway up --hosts 2 --bind x:1"
    assert instead_of("seaway status head:29000") == "seaway status head:29000"

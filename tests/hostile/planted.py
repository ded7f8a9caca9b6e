"""Readers that break the law, one way each: the law must notice all of them. `python -m tests.hostile.planted` tries
them in a process of its own, and prints what was said of each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import making
from .kinds import KINDS, Kind
from .opening import File, Opener

HELD: list[bytes] = []
FEW = 10  # files, among which it must be noticed


def _imports(path: Path) -> None:
    __import__("evil")


def _calls(path: Path) -> None:
    os.system("true")


def _starts(path: Path) -> None:
    subprocess.run(["true"], check=True)


def _creates(path: Path) -> None:
    path.with_name("another").write_text("")


def _connects(path: Path) -> None:
    socket.socket().close()


def _evaluates(path: Path) -> None:
    eval("1 + 1")


def _reads_another(path: Path) -> None:
    with open("/etc/hostname", encoding="utf-8") as file:
        file.read()


def _takes_long(path: Path) -> None:
    while True:
        pass


def _takes_memory(path: Path) -> None:
    HELD.append(bytes(3 << 30))


def _raises_another(path: Path) -> None:
    raise KeyError(str(path))


def _names_nothing(path: Path) -> None:
    raise ValueError("it is wrong")


def _says_much(path: Path) -> None:
    raise ValueError(f"{path} is wrong:\n{path.read_bytes()!r}")


def _says_something_else(path: Path) -> int:
    return 1 if path.read_bytes() == making.CODE else 2


PLANTED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "imports what a file names": (_imports, "code that the file names was run"),
    "calls the shell": (_calls, "it did more than read: os.system"),
    "starts a process": (_starts, "it did more than read: subprocess.Popen"),
    "creates a file": (_creates, "it did more than read: open"),
    "connects": (_connects, "it did more than read: socket"),
    "evaluates": (_evaluates, "it did more than read: exec"),
    "reads another file": (_reads_another, "it did more than read: open '/etc/hostname'"),
    "takes long": (_takes_long, "no error of Seaway's"),
    "takes memory": (_takes_memory, "no error of Seaway's"),
    "raises another error": (_raises_another, "no error of Seaway's"),
    "names no file": (_names_nothing, "the error does not name the file"),
    "says too much": (_says_much, "the error is no readable line"),
    "does not notice": (_says_something_else, "it was damaged, and opened without an error"),
}


def _made(folder: Path) -> Path:
    path = folder / "file"
    path.write_bytes(making.CODE)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="seaway-hostile-") as work:
        opener = Opener(Path(work))
        found = {}
        for name, (reads, _) in PLANTED.items():
            KINDS[name] = Kind(_made, reads, summed=True)
            opener.good[name] = 1
            said = (opener.judge(File(0, number, [name]))[1] for number in range(FEW))
            found[name] = next(filter(None, said), "")
        print(json.dumps(found))


if __name__ == "__main__":
    main()

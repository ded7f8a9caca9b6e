"""What a piece of code does beside reading: an audit hook of this process. Python calls it ahead of each such act."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Acts that no file may lead to, by the beginning of their names.
FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "pty.spawn", "subprocess.",
    "socket.", "ctypes.", "pickle.", "marshal.", "exec", "code.__new__", "urllib.", "ftplib.", "http.", "smtplib.",
    "webbrowser.", "os.kill", "os.putenv", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.", "tempfile.",
)  # fmt: skip
# Modules that errors import: their own text's, and Python's.
HARMLESS = {"difflib", "traceback", "linecache", "tokenize", "textwrap", "decimal", "_decimal", "stringprep"}
READABLE = (str(ROOT), *filter(None, sys.path), "/proc/", "/sys/", "/usr/", "/etc/localtime", "/dev/urandom")


def _is_of_types() -> bool:
    """`typing` evaluates the annotations of our own classes."""
    frame: Any = sys._getframe(3)
    names = [frame.f_globals.get("__name__"), frame.f_back and frame.f_back.f_globals.get("__name__")]
    return "typing" in names


class Watch:
    """`acts`: what was done and is not allowed. `folder`: the only place where files may be read, and written if
    `may_write`."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.folder, self.may_write = "", False
        self._on = False
        sys.addaudithook(self._hook)

    @contextmanager
    def on(self, folder: Path, may_write: bool) -> Iterator[list[str]]:
        self.acts, self.folder, self.may_write = [], str(folder), may_write
        self._on = True
        try:
            yield self.acts
        finally:
            self._on = False

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or event in ("compile", "sys._getframe", "object.__getattr__", "os.listdir", "os.scandir"):
            return
        self._on = False  # what is done here is ours
        try:
            if said := self._judged(event, args):
                self.acts.append(f"{event} {said}")
        finally:
            self._on = True

    def _judged(self, event: str, args: tuple[Any, ...]) -> str:
        if event == "import":
            name = str(args[0])
            return "" if name.partition(".")[0] in HARMLESS else name
        if event == "open":
            path, _, flags = args
            if isinstance(path, int):
                return ""  # it was opened before
            where = os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
            inside = not where or str(where).startswith(self.folder)
            if flags & WRITES:
                return "" if where and inside and self.may_write else f"{path!r} for writing"
            return "" if inside or str(where).startswith(READABLE) else repr(path)
        if event == "exec" and _is_of_types():
            return ""
        if event.startswith(FORBIDDEN):
            mine = self.may_write and event.startswith(("os.mkdir", "os.rename", "os.remove", "tempfile.", "os.chmod"))
            return "" if mine and self.folder in str(args[0]) else repr(args)[:200]
        return ""

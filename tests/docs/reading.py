"""A reader who does what a page says, in a folder and with ports of their own, and ends what was started."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .pages import ROOT, Block, Unit, matches
from .table import INSTEAD, NOT_COMPARED, OUTLIVES, PREPARED, SUBSTITUTED

PATIENCE = 120.0  # seconds for a program that a command starts to be ready, or to end
LONGEST = 300.0  # seconds for a command
PORTS = ("29000", "29001", "29002", "9100")  # ports as pages write them
HELPED: dict[str, str] = {}  # what commands have said to --help: a page may have many that stand for one
LOWEST, HIGHEST = 20_000, 32_000  # below the ports that systems assign by themselves


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._ports = dict(zip(PORTS, free_ports(), strict=False))
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._env = {**os.environ, "ROOT": str(ROOT)}
        self._env["PATH"] = f"{bin_folder(folder)}:{os.environ['PATH']}"
        for part in ("examples", "docs/examples", "docs/deploy"):
            shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True)

    def prepare(self, page: str) -> None:
        if page in PREPARED:
            words = [sys.executable, "-c", PREPARED[page]]
            subprocess.run(words, cwd=self.folder, check=True, capture_output=True)

    def does(self, block: Block, where: str) -> str:
        """Do it. Returns the output."""
        if block.kind != "python":
            return self.command(block.text)
        if block.how:  # a file that the page tells its reader to write
            (self.folder / block.how).write_text(self._here(block.text), encoding="utf-8")
        return self.python(block.text, where)

    def python(self, code: str, where: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(self.folder):
            sys.path.insert(0, str(self.folder))  # as for a reader at a terminal
            try:
                exec(compile(self._here(code), where, "exec"), self.names)
            finally:
                sys.path.remove(str(self.folder))
        return self._there(out.getvalue())

    def command(self, said: str) -> str:
        words = self._here(instead_of(said.partition("  #")[0].strip()))
        if words.startswith("export "):
            return self._export(words)
        ready = next((ready for begins, ready in OUTLIVES.items() if re.match(begins, words)), None)
        helps = "--help" in words
        if helps and words in HELPED:
            return HELPED[words]
        if ready is not None and not helps:
            return self._there(self._start(words, re.compile(ready)))
        done = subprocess.run(
            ["bash", "-c", words], cwd=self.folder, env=self._env, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=LONGEST,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        said = self._there(done.stdout)
        if helps:
            HELPED[words] = said
        return said

    def _export(self, words: str) -> str:
        """Variables for all later commands."""
        done = subprocess.run(
            ["bash", "-c", f"{words} && env -0"], cwd=self.folder, env=self._env, capture_output=True, text=True,
            check=True, timeout=PATIENCE,
        )  # fmt: skip
        there = dict(each.partition("=")[::2] for each in done.stdout.split("\0") if each)
        names = [word.partition("=")[0] for word in words.split()[1:]]
        self._env |= {name: there[name] for name in names}
        return ""

    def _start(self, words: str, ready: re.Pattern[str]) -> str:
        """Start a program. Returns when it is ready."""
        said, told = (self.folder / f"{len(self._started)}.{kind}" for kind in ("out", "err"))
        with said.open("wb") as out, told.open("wb") as err:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {words}"], cwd=self.folder, env=self._env, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._started.append((words, process))
        until = time.monotonic() + PATIENCE
        while ready.search(said.read_text()) is None:
            assert process.poll() is None, f"{words}\n{told.read_text()}"
            assert time.monotonic() < until, f"{words}: not ready\n{said.read_text()}{told.read_text()}"
            time.sleep(0.02)
        return said.read_text()

    def close(self) -> None:
        """End everything that was started, the last program first."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]
        left = []
        for words, process in reversed(self._started):
            try:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                left.append(words)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert not left, f"told to end, these went on: {left}"

    # --- names of other places ----------------------------------------------------------------------------------

    def _here(self, text: str) -> str:
        for theirs, ours in SUBSTITUTED.items():
            text = re.sub(rf"(?<![\w.]){re.escape(theirs)}", ours, text)
        for theirs, ours in self._ports.items():
            text = re.sub(rf"(?<!\d){theirs}(?!\d)", ours, text)
        return text

    def _there(self, text: str) -> str:
        for theirs, ours in self._ports.items():
            text = text.replace(ours, theirs)
        return text


def bin_folder(folder: Path) -> str:
    """A folder in which `python` and `seaway` are those of this environment. Makes `seaway` where it is not
    installed."""
    here = Path(sys.executable).parent
    if (here / "seaway").exists():
        return str(here)
    script = folder / ".bin" / "seaway"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m seaway "$@"\n')  # -P: not from the folder
    script.chmod(0o755)
    return f"{script.parent}:{here}"


def instead_of(command: str) -> str:
    for each in INSTEAD:
        if re.fullmatch(each.said, command):
            return re.sub(each.said, each.run, command, count=1)
    return command


def free_ports() -> Iterator[str]:
    """Ports on which nothing listens, and which the system does not assign meanwhile."""
    at = LOWEST + os.getpid() * 37 % (HIGHEST - LOWEST)
    for port in (*range(at, HIGHEST), *range(LOWEST, at)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield str(port)


def read(unit: Unit, folder: Path, rewrite: bool = False) -> None:
    """Do all that the page says, and compare."""
    reader = Reader(folder)
    reader.prepare(unit.page.relative_to(ROOT).as_posix())
    try:
        said, last = "", ""
        for at, block in enumerate(unit.blocks):
            if block.kind == "said":
                if last not in NOT_COMPARED:
                    compare(unit, block, said, rewrite)
                continue
            follows = at and unit.blocks[at - 1].kind == "command" == block.kind
            printed = reader.does(block, f"{unit.page.name}:{block.line}")
            said, last = said + printed if follows else printed, block.text
    finally:
        reader.close()


def compare(unit: Unit, block: Block, said: str, rewrite: bool) -> None:
    if matches(said, block.text, block.how):
        return
    where = f"{unit.page.name}:{block.line}"
    assert rewrite, f"{where} shows\n{block.text}\nand this is printed (--rewrite puts it there):\n{said}"
    text = unit.page.read_text(encoding="utf-8")
    assert text.count(block.text) == 1, f"{where}: shown twice; put it there by hand:\n{said}"
    assert block.how != "part", f"{where}: a part; put it there by hand:\n{said}"
    unit.page.write_text(text.replace(block.text, said), encoding="utf-8")

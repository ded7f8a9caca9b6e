"""Opens drawn files one after another in this process, and judges each: one error that names the file, or what it says.

A file is drawn from a seed and its number. `hunting` starts this as a process of its own, and reads its lines.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from backend.auth import AccessRefused
from core.model import SeawayError
from seaway.cli import shown

from . import damage
from .kinds import KINDS, Kind
from .watching import Watch

SECONDS = 5.0  # of the processor's time, for one file
MEMORY = 1 << 30  # bytes of address space, for one file
LONGEST = 1_000  # characters of an error
EVIL = "open({mark!r}, 'w').close()\n"


class Late(BaseException):
    """The time for this file is over."""


class File:
    """Number `number` of this seed: which kind, and what was done to it."""

    def __init__(self, seed: int, number: int, kinds: list[str]) -> None:
        self.random = Random(f"{seed}/{number}")
        self.name = kinds[number % len(kinds)]
        self.kind: Kind = KINDS[self.name]
        self.by_bytes = False

    def make(self, folder: Path) -> Path:
        """Make a good one, and damage it."""
        path = self.kind.make(folder)
        chance = self.random.random()
        if chance < 0.05:
            damage.of_place(self.random, self._part(path))
        elif chance < 0.5 or self.kind.reshape is None:
            self.by_bytes = True
            damage.of_bytes(self.random, self._part(path))
        else:
            self.kind.reshape(self.random, path)
        return path

    def _part(self, path: Path) -> Path:
        return self.random.choice(sorted(path.rglob("*"))) if path.is_dir() else path


class Opener:
    def __init__(self, work: Path) -> None:
        self.work = work
        self.mark = work / "it-ran"
        evil = work / "evil"  # it is on the path, so that a name in a file finds it
        evil.mkdir()
        (evil / "evil.py").write_text(EVIL.format(mark=str(self.mark)))
        (evil / "evil_policies.py").write_text(EVIL.format(mark=str(self.mark)))
        sys.path.insert(0, str(evil))
        self.watch = Watch()
        self.good: dict[str, Any] = {}

    def warm(self, names: list[str]) -> None:
        """Opens a good file of each kind: whatever is imported when it is first used is there afterwards."""
        for name in names:
            with self._folder() as folder:
                path = KINDS[name].make(folder)
                with contextlib.redirect_stdout(io.StringIO()):
                    self.good[name] = KINDS[name].open(path)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """Always of the same name, since some of what is read says its name."""
        folder = self.work / "here"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def judge(self, file: File, keep: Path | None = None) -> tuple[str, str]:
        """How the file was dealt with: "opened" or "refused"; and what is wrong with that, or nothing."""
        with self._folder() as folder:
            path = file.make(folder)
            if keep is not None:
                shutil.copytree(folder, keep / "here", symlinks=True, ignore=_pipes)
            before = _listed(self.work)
            with _bounds(), self.watch.on(folder, file.kind.writes) as acts:
                found, error = _opened(file.kind, path)
            after = _listed(self.work)
        how = "opened" if error is None else "refused"
        if self.mark.exists():
            self.mark.unlink()
            return how, "code that the file names was run"
        if acts:
            return how, f"it did more than read: {'; '.join(acts[:5])}"
        if before != after and not file.kind.writes:
            return how, f"it left files: {sorted(after ^ before)[:5]}"
        if error is not None:
            return how, self._judged_error(error, path)
        if file.by_bytes and file.kind.summed and found not in (self.good[file.name], None):
            return how, f"it was damaged, and opened without an error: {found!r:.300}"
        return how, ""

    def _judged_error(self, error: BaseException, path: Path) -> str:
        if not isinstance(error, SeawayError | AccessRefused | ValueError):
            return f"no error of Seaway's: {''.join(traceback.format_exception(error))[-1500:]}"
        said = shown(error)
        if str(path) not in said:
            return f"the error does not name the file: {type(error).__name__}: {said:.1000}"
        if "\n" in said or not said.isprintable() or len(said) > LONGEST:
            return f"the error is no readable line: {said!r:.1500}"
        return ""


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not os.path.islink(f"{folder}/{name}") and not os.path.isfile(f"{folder}/{name}")
            and not os.path.isdir(f"{folder}/{name}")]  # fmt: skip


def _listed(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in str(path)}


def _opened(kind: Kind, path: Path) -> tuple[Any, BaseException | None]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return kind.open(path), None
    except (Exception, Late, SystemExit) as error:
        return None, error


@contextlib.contextmanager
def _bounds() -> Iterator[None]:
    """Of time and memory. A wait takes no time of the processor's: `hunting` notices it."""

    def late(*_: object) -> None:
        raise Late(f"it took more than {SECONDS:g} s")

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def say(**line: Any) -> None:
    print(json.dumps(line), file=sys.__stdout__, flush=True)


def play(seed: int, numbers: Iterator[int], kinds: list[str], keep: Path | None = None) -> None:
    """Says each file's number ahead of opening it, and what is wrong, if anything is."""
    with tempfile.TemporaryDirectory(prefix="seaway-hostile-") as work:
        opener = Opener(Path(work))
        opener.warm(kinds)
        for number in numbers:
            file = File(seed, number, kinds)
            say(number=number, kind=file.name)
            how, wrong = opener.judge(file, keep)
            say(number=number, kind=file.name, how=how, wrong=wrong)
            if number % 100 == 0:
                gc.collect()
    say(over=True)

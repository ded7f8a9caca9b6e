"""Starts a process that opens drawn files, and starts another if that one dies or hangs: then the file at which it was
is what is wrong."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from .watching import ROOT

SILENCE = 300.0  # seconds without a line, of which opening a file takes few: it waits for something


class Outcome(NamedTuple):
    """`how`: "opened" or "refused"; "": the process ended. `wrong`: what is wrong with that, or nothing."""

    number: int
    kind: str
    how: str
    wrong: str


def hunt(seed: int, first: int, files: int, kinds: Sequence[str] = ()) -> Iterator[Outcome]:
    """What came of each file of this seed."""
    at = first
    while at < first + files:
        for found in _lines(seed, at, first + files - at, kinds):
            if found.how or found.wrong:
                yield found
            at = found.number + 1


def _lines(seed: int, first: int, files: int, kinds: Sequence[str]) -> Iterator[Outcome]:
    words = [sys.executable, "-m", "tests.hostile", "--child", "--seed", str(seed), "--first", str(first),
             "--files", str(files), *(word for kind in kinds for word in ("--kind", kind))]  # fmt: skip
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1",
                   "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(ROOT)}  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        last: Outcome | None = None
        for line in _heard(child.stdout):
            said = json.loads(line)
            if "over" in said:
                return
            last = Outcome(said["number"], said["kind"], said.get("how", ""), said.get("wrong", ""))
            yield last
        try:
            how = f"it ended the process: {child.wait(1)}"
        except subprocess.TimeoutExpired:
            how = f"nothing happened for {SILENCE:g} s"
            child.kill()
        if last is None:
            raise RuntimeError(f"no file was opened: {how}")
        yield last._replace(how="", wrong=how)


def _heard(file: IO[str]) -> Iterator[str]:
    """Lines, until the other end is over or silent for too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        while selector.select(SILENCE):
            line = file.readline()
            if not line:
                return
            yield line


def keep_one(seed: int, number: int, kinds: Sequence[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "tests.hostile", "--child", "--seed", str(seed), "--first", str(number),
             "--files", "1", "--keep", str(folder), *(word for kind in kinds for word in ("--kind", kind))]  # fmt: skip
    subprocess.run(words, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
